# Runs a program in a root file system of its own: nothing in it but what is named, and all of it read-only but
# one folder. The program has no capability, may not get any, and is not root.
#
#   confined.sh NEW_ROOT USER WRITABLE READABLE... -- PROGRAM...
#
# To be run by unshare(1) in a mount namespace of its own. NEW_ROOT is an empty folder; USER is who to become, "-"
# to stay who it is. Each path has the same name inside.
set -eu

root=$1 user=$2 writable=$3
shift 3

mount -t tmpfs -o size=1m,mode=755 none "$root"

bind() { # PATH OPTION
	if [ -L "$1" ]; then
		ln -s "$(readlink "$1")" "$root$1" # /bin is one where /usr is merged
	elif [ -d "$1" ]; then
		mkdir -p "$root$1"
		mount --rbind "$1" "$root$1"
		mount -o "remount,bind,$2" "$root$1"
	elif [ -e "$1" ]; then
		mkdir -p "$root$(dirname "$1")"
		: >"$root$1"
		mount --bind "$1" "$root$1"
		mount -o "remount,bind,$2" "$root$1"
	fi
}

for path in /usr /bin /lib /lib64 /etc /proc; do bind "$path" ro; done
bind /dev/null rw
bind /dev/urandom ro
while [ "$1" != -- ]; do
	bind "$1" ro
	shift
done
shift
bind "$writable" rw
mount -o remount,ro "$root"

if [ "$user" = - ]; then
	become=
else
	become="--reuid=$user --regid=$user --clear-groups"
fi
# shellcheck disable=SC2086 # words on purpose
exec chroot "$root" setpriv $become --bounding-set=-all --inh-caps=-all --ambient-caps=-all --no-new-privs \
	--pdeathsig=KILL -- "$@"
