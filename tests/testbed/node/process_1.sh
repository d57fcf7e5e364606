# Process 1 of a node: what it starts ends with it, and so do its mounts. unshare(1) has made its namespaces.
#
#   process_1.sh RUN CGROUP
#
# RUN is this run's folder, CGROUP is the control group of all pods.
set -eu
run=$1 cgroup=$2

mkdir -p "$run/cgroup" "$run/kubelet" "$run/log" "$run/volumes"
mount --rbind /sys/fs/cgroup "$run/cgroup"
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount --rbind "$run/cgroup" /sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/containerd /run/cni-ipam /run/lock
mount --bind "$run/kubelet" "$run/kubelet"
mount --make-rshared "$run/kubelet"
# Where the kubelet links to containers' logs.
mount --bind "$run/log" /var/log
echo node1 >/proc/sys/kernel/hostname
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables 2>/dev/null || true

# All pods together would get as much of a busy machine as one process beside them, so their group weighs as much as eight.
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
	for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
		echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control || true
	done
	mkdir "/sys/fs/cgroup/$cgroup"
	echo 800 >"/sys/fs/cgroup/$cgroup/cpu.weight"
else
	for controller in cpu cpuacct cpuset memory devices freezer blkio pids systemd; do
		mkdir "/sys/fs/cgroup/$controller/$cgroup"
	done
	echo 8192 >"/sys/fs/cgroup/cpu/$cgroup/cpu.shares"
	for name in cpus mems; do
		cat "/sys/fs/cgroup/cpuset/cpuset.$name" >"/sys/fs/cgroup/cpuset/$cgroup/cpuset.$name"
	done
fi

: >"$run/ready"
# It reaps the orphans that the kernel gives it.
while :; do
	sleep 3600 &
	wait $! || true
done
