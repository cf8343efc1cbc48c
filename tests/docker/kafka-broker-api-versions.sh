#!/bin/bash
# Stands in for Kafka's own script of this name, whose jar is not here, in health checks:
# kafka-broker-api-versions.sh --bootstrap-server HOST:PORT. It sends an ApiVersions request and
# has status 0 if a broker answers it.
set -eu
[ "$1" = --bootstrap-server ]
exec 3<>"/dev/tcp/${2%:*}/${2##*:}"
# length 14; key 18, version 0, correlation id 7, client "test"
printf '\0\0\0\016\0\022\0\0\0\0\0\007\0\004test' >&3
answer=$(head -c 10 <&3 | od -An -tx1 | tr -d ' \n')
# behind the length: the correlation id and no error
[ "${answer:8}" = 000000070000 ]
