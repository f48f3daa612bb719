# Starts systemd as the first process of namespaces of its own: boot.sh NAME LAYOUT FOLDER BINARY
# It sees the host's files and network, but its own processes, mounts and cgroups, and only the units in FOLDER/units.
# BINARY is FOLDER/herdsman there.
set -eu
name=$1 layout=$2 folder=$3 binary=$4

# A cgroup in every hierarchy; the cgroup namespace makes it the root that systemd sees.
place() {
    mkdir -p "$1/$name"
    if [ -e "$1/cpuset.cpus" ] && [ -e "$1/$name/cpuset.cpus" ] && [ -e "$1/tasks" ]; then
        cat "$1/cpuset.cpus" > "$1/$name/cpuset.cpus"
        cat "$1/cpuset.mems" > "$1/$name/cpuset.mems"
    fi
    echo $$ > "$1/$name/cgroup.procs"
}
if [ -e /sys/fs/cgroup/cgroup.procs ]; then
    for controller in cpu memory pids; do
        echo "+$controller" > /sys/fs/cgroup/cgroup.subtree_control || true
    done
    place /sys/fs/cgroup
else
    for hierarchy in /sys/fs/cgroup/*; do
        if [ ! -L "$hierarchy" ] && [ -e "$hierarchy/cgroup.procs" ]; then
            place "$hierarchy"
        fi
    done
fi

# It ends with whoever started it, and everything in it with its first process.
exec setpriv --pdeathsig KILL \
    unshare --fork --kill-child --pid --mount --cgroup --uts --ipc --propagation private sh -eu -c '
layout=$1 folder=$2 binary=$3

# A root without what else is mounted on this host: systemd would make a unit of each mount.
mkdir "$folder/root"
: > "$folder/herdsman"
: > "$folder/console"
mount --bind / "$folder/root"
cd "$folder/root"
if mountpoint -q /usr; then mount --bind /usr usr; fi
mount -t tmpfs tmpfs tmp
mount -t tmpfs tmpfs run
mkdir -p ".$folder" tmp/old run/empty
mount --bind "$folder" ".$folder"
mount --bind "$binary" ".$folder/herdsman"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs sysfs sys
mount --bind /dev dev
mount -t devpts devpts dev/pts
mount -t tmpfs tmpfs dev/shm
mount --bind "$folder/console" dev/console
# Generators would make units of what this host has.
for generators in lib/systemd/system-generators lib/systemd/system-environment-generators; do
    if [ -d "$generators" ]; then mount --bind run/empty "$generators"; fi
done
groups=sys/fs/cgroup
if [ "$layout" = unified ]; then
    mount -t cgroup2 cgroup2 $groups
else
    mount -t tmpfs tmpfs $groups
    for controller in cpu cpuacct memory pids; do
        mkdir "$groups/$controller"
        mount -t cgroup -o "$controller" cgroup "$groups/$controller"
    done
    mkdir $groups/systemd $groups/unified
    mount -t cgroup -o none,name=systemd cgroup $groups/systemd
    mount -t cgroup2 cgroup2 $groups/unified
fi
pivot_root . tmp/old
cd /
umount --lazy /tmp/old
mount --make-rshared /
exec env -i container=herdsman-test PATH=/usr/sbin:/usr/bin:/sbin:/bin "SYSTEMD_UNIT_PATH=$folder/units" \
    /lib/systemd/systemd --system --unit=default.target --show-status=0
' sh "$layout" "$folder" "$binary"
