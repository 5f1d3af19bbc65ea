#!/bin/bash
# Fills an ext4 file with what a node has beyond this machine's own root. Runs in mount and process namespaces of its own.
# Arguments: the file, the script that runs inside, and then the arguments of that script.
set -euo pipefail
file=$1 script=$2
shift 2
place=$(mktemp -d)
mount --make-rprivate /
mount -t tmpfs tmpfs "$place"
mkdir "$place/disk" "$place/root"
mount -o loop "$file" "$place/disk"
mkdir "$place/disk/upper" "$place/disk/work"
# A loop file, since an overlay refuses an upper folder inside its lower one, and the lower one is the whole root.
mount -t overlay overlay -o "lowerdir=/,upperdir=$place/disk/upper,workdir=$place/disk/work" "$place/root"
mount -t proc proc "$place/root/proc"
mount --rbind /dev "$place/root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$place/root/tmp"
mount -t tmpfs tmpfs "$place/root/run"
cp -L /etc/resolv.conf "$place/root/tmp/resolv.conf"
cat "$place/root/tmp/resolv.conf" > "$place/root/etc/resolv.conf" || true
cp "$script" "$place/root/tmp/setup.sh"
chroot "$place/root" /bin/bash /tmp/setup.sh "$@"
umount -R "$place/root"
rm -r "$place/disk/work"
umount "$place/disk"
