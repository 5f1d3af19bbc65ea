#!/bin/bash
# The first process of the bed's namespaces (mount, network, process, IPC). When it dies, all that lives in them dies.
# Arguments: the nodes' image, the bed's folder.
set -euo pipefail
image=$1 folder=$2
mount --make-rprivate /
mkdir -p "$folder/image" "$folder/nodes"
mount -o loop,ro,noload "$image" "$folder/image"
mount -t tmpfs -o mode=755 tmpfs "$folder/nodes"
# What SkyPilot's client side needs (ssh, rsync) is in the image: this machine's own root stays as it is.
mount -t overlay overlay -o "lowerdir=$folder/image/upper/usr:/usr" /usr
# Without a name server the resolver asks this machine, which refuses at once; one that is out of reach costs seconds.
: > "$folder/resolv.conf"
mount --bind "$folder/resolv.conf" /etc/resolv.conf
ip link set lo up
ip link add br0 type bridge
ip addr add 10.255.255.254/8 dev br0
ip addr add 169.254.169.254/32 dev br0  # where every EC2 machine looks for its metadata
ip link set br0 up
echo ready > "$folder/ready"
while :; do sleep 3600 & wait $! || true; done  # bash reaps whatever its dead left to it
