#!/bin/sh
# user.sh: who the programs run as, and the one folder that is theirs.
set -eu

groupadd --gid 10001 kafka-telemetry
useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/kafka-telemetry --shell /usr/sbin/nologin kafka-telemetry
install -d -o 10001 -g 10001 -m 0750 /var/lib/kafka-telemetry
install -d /etc/kafka-telemetry
