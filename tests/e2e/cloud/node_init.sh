#!/bin/bash
# The first process of one node: its own root, processes, host name and network, and sshd. Its death is the machine's.
# Arguments: the image's folder, the node's folder, its address, the host where the cloud is, the project's libraries.
set -euo pipefail
image=$1 folder=$2 address=$3 endpoint=$4 site=$5
root=$folder/root
mount --make-rprivate /
mkdir -p "$folder/upper" "$folder/work" "$root"
mount -t overlay overlay -o "lowerdir=$image/upper:/,upperdir=$folder/upper,workdir=$folder/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys" 2>/dev/null || true
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs tmpfs "$root/run"
mount --bind "$site" "$root/opt/hexcloud-site"
mount -o remount,ro,bind "$root/opt/hexcloud-site"
mkdir -p "$root/run/sshd"

name=ip-${address//./-}
hostname "$name"
printf '127.0.0.1 localhost\n%s %s\n' "$address" "$name" > "$root/etc/hosts"
: > "$root/etc/resolv.conf"
ip link set lo up
for _ in $(seq 100); do [ -e /proc/self/net/dev ] && grep -q eth0 /proc/self/net/dev && break; sleep 0.05; done
ip addr add "$address/8" dev eth0
ip link set eth0 up
ip route add 169.254.169.254 dev eth0

install -d -m 700 -o "$(chroot "$root" id -u ubuntu)" -g "$(chroot "$root" id -g ubuntu)" "$root/home/ubuntu/.ssh"
cp "$folder/authorized_keys" "$root/home/ubuntu/.ssh/authorized_keys"
chroot "$root" chown ubuntu:ubuntu /home/ubuntu/.ssh/authorized_keys
chmod 600 "$root/home/ubuntu/.ssh/authorized_keys"
cat > "$root/etc/ssh/sshd_config" <<SSHD
Port 22
PasswordAuthentication no
UsePAM no
MaxSessions 200
MaxStartups 150:30:200
Subsystem sftp /usr/lib/openssh/sftp-server
PidFile /run/sshd.pid
SetEnv UV_OFFLINE=1 AWS_ENDPOINT_URL=$endpoint
SSHD
exec chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    bash -c 'ssh-keygen -A >/dev/null; exec /usr/sbin/sshd -D -e'
