# Removes what the kernel leaves of a node: control groups, and the run's folder.
#
#   broom.sh RUN CGROUP < PIPE
#
# It begins when the other end of the pipe is closed: by the testbed, or by its death.
run=$1 cgroup=$2
cat >/dev/null

left() { find /sys/fs/cgroup/"$cgroup" /sys/fs/cgroup/*/"$cgroup" -depth -type d 2>/dev/null; }
for _ in $(seq 600); do
	left | while read -r folder; do rmdir "$folder" 2>/dev/null; done
	[ -z "$(left)" ] && break
	sleep 0.1
done
[ -n "${TESTBED_KEEP:-}" ] || rm -rf --one-file-system "$run"
