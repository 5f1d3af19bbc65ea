#!/bin/bash
# What a node has beyond this machine's own root; runs inside, with the registries at hand. Argument: SkyPilot's version.
set -euo pipefail
skypilot=$1
export DEBIAN_FRONTEND=noninteractive PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d  # no package starts its service here
chmod +x /usr/sbin/policy-rc.d
apt-get update -q
apt-get install -q -y --no-install-recommends sudo procps openssh-server openssh-client rsync python3-venv netcat-openbsd
apt-get clean

id ubuntu 2>/dev/null || useradd --create-home --shell /bin/bash ubuntu
usermod --password '*' ubuntu  # "!" would mean a locked account, which sshd refuses
echo 'ubuntu ALL=(ALL) NOPASSWD:ALL' > /etc/sudoers.d/ubuntu
# Set-up steps meet an index that is not there: uv shall not ask it.
mkdir -p /etc/uv
echo 'offline = true' > /etc/uv/uv.toml

cat > /tmp/user.sh <<'USER'
set -euo pipefail
cd ~
mkdir -p .local/bin .ssh .sky
chmod 700 .ssh
# SkyPilot leaves a runtime alone that is there already, and finds its requirements met.
/usr/bin/python3 -m venv skypilot-runtime
skypilot-runtime/bin/pip install --quiet --no-cache-dir --disable-pip-version-check \
    'setuptools<70' 'click<8.2' 'ray[default]==2.9.3' 'pydantic-core==2.41.1' "skypilot[aws,remote]==$1" uv
cp skypilot-runtime/bin/uv .local/bin/uv
# The node program's environment sees the project's libraries (mounted at boot), but not the project: that comes as a wheel.
/usr/bin/python3 -m venv --without-pip hexcloud-env
echo /opt/hexcloud-site > "$(echo hexcloud-env/lib/python3*/site-packages)/project.pth"
USER
mkdir -p /opt/hexcloud-site
keep=$(compgen -e | grep -E '^(PIP_|SSL_CERT|https?_proxy|HTTPS?_PROXY|no_proxy|NO_PROXY)' | paste -sd, || true)
su ubuntu --login ${keep:+--whitelist-environment "$keep"} -c "bash /tmp/user.sh $skypilot"
