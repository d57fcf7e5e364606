#!/bin/sh
# packages.sh PACKAGE...: Debian's updates since the base image, then packages and what they can't do without.
set -eu

export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get upgrade -q -y
apt-get install -q -y --no-install-recommends "$@"

# Nobody looks up anything here, and a later layer would not make this one smaller. Copyright notices stay.
apt-get clean
rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/*.log /usr/share/man/* /tmp/*
find /usr/share/doc -type f ! -name copyright -delete
