# Runs a program in a root folder of its own, as a container engine does, in a mount and PID namespace that
# unshare(1) has made.
#
#   engine.sh ROOT MODE FOLDER USER [bind SOURCE TARGET ro|rw]... -- PROGRAM...
#
# MODE ro: the root folder can't be written to, but for /tmp, and the program has no capability. FOLDER is where it
# starts; USER is UID:GID. The environment is passed on.
set -eu

root=$1 mode=$2 folder=$3 user=$4
shift 4

mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755,size=64k none "$root/dev"
for device in null zero random urandom full; do
	: >"$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir -m 1777 "$root/dev/shm"
mount -t tmpfs -o mode=1777 none "$root/dev/shm"
if [ "$mode" = ro ]; then mount -t tmpfs -o mode=1777 none "$root/tmp"; fi

while [ "$1" != -- ]; do # bind SOURCE TARGET HOW
	if [ -d "$2" ]; then mkdir -p "$root$3"; else
		mkdir -p "$(dirname "$root$3")"
		[ -e "$root$3" ] || : >"$root$3"
	fi
	mount --bind "$2" "$root$3"
	mount -o "remount,bind,$4" "$root$3"
	shift 4
done
shift

if [ "$mode" = ro ]; then
	mount -o remount,bind,ro "$root"
	# shellcheck disable=SC2086
	set -- setpriv --reuid="${user%:*}" --regid="${user#*:}" --clear-groups --bounding-set=-all --inh-caps=-all \
		--ambient-caps=-all --no-new-privs -- "$@"
fi
exec chroot "$root" /bin/sh -c 'cd "$0" && exec "$@"' "$folder" "$@"
