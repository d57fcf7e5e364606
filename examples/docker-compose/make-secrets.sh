#!/bin/sh
# Makes the passwords and the token of this example, once; what is there stays.
set -eu
cd "$(dirname "$0")"
mkdir -p secrets
# Containers read these files under ids of their own, so they are for everybody, in a folder that is not.
chmod 700 secrets
umask 022

random() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

for name in grafana_admin_password grafana_postgres_password postgres_password rest_token rollup_password; do
    [ -s "secrets/$name" ] || random >"secrets/$name"
done
printf 'postgresql://rollup:%s@postgres:5432/telemetry' "$(cat secrets/rollup_password)" >secrets/rollup_url
