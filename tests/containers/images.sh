# Sourced by tests/containers/run: makes the images that the tests need out
# of package registries alone, unless the environment names others. BASE_IMAGE, OASR_IMAGE,
# KAFKA_IMAGE and PROMETHEUS_IMAGE are set and exported.
# shellcheck shell=bash

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
CACHE=${OASR_TEST_CACHE:-$HOME/.cache/oasr-worker/test-containers}
# Debian's engine has the classic builder only; the Dockerfiles need no other
export DOCKER_BUILDKIT=${DOCKER_BUILDKIT:-0}

missing() {
    echo "missing: $1" >&2
    exit 1
}

need_engine() {
    command -v docker >/dev/null || missing "docker (Debian: apt-get install docker.io iptables)"
    docker info >/dev/null 2>&1 || missing "a container engine that answers (as root: dockerd &)"
}

there() { docker image inspect "$1" >/dev/null 2>&1; }

# Debian's minimal system, pulled or, where no registry of images answers, made by debootstrap
base_image() {
    export BASE_IMAGE=${BASE_IMAGE:-debian:bookworm-slim}
    if there "$BASE_IMAGE" || docker pull -q "$BASE_IMAGE" 2>/dev/null; then return; fi
    BASE_IMAGE=oasr-test-base:bookworm
    if there "$BASE_IMAGE"; then return; fi
    command -v debootstrap >/dev/null || missing "the image debian:bookworm-slim, or debootstrap to make one"
    local folder=$CACHE/base authorities=/etc/ssl/certs/ca-certificates.crt
    rm -rf "$folder" && mkdir -p "$folder"
    debootstrap --variant=minbase --include=ca-certificates bookworm "$folder"
    # this machine's certificate authorities: its way out may have one of its own
    [ ! -f "$authorities" ] || cp "$authorities" "$folder$authorities"
    tar -C "$folder" -c . | docker import --change "ENV PIP_CERT=$authorities" - "$BASE_IMAGE"
    rm -rf "$folder"
}

worker_image() {
    if [ -n "${OASR_IMAGE:-}" ]; then
        there "$OASR_IMAGE" || missing "the image $OASR_IMAGE that OASR_IMAGE names"
    else
        export OASR_IMAGE=oasr-worker:test
        docker build --target cpu -t "$OASR_IMAGE" --build-arg BASE_IMAGE="$BASE_IMAGE" \
            --build-arg TORCH_INDEX="${TORCH_INDEX:-}" "$ROOT"
    fi
}

# kafka_image PYTHON: the jars come as for a broker without a container
kafka_image() {
    if [ -n "${KAFKA_IMAGE:-}" ]; then return; fi
    export KAFKA_IMAGE=oasr-test-kafka:latest
    local context=$CACHE/kafka
    rm -rf "$context" && mkdir -p "$context"
    "$1" - "$context/libs" <<'PYTHON'
import shutil, sys
from worker.devkafka import DEFAULT_CACHE_DIR
from worker.devkafka_jars import kafka_jars

shutil.copytree(kafka_jars(DEFAULT_CACHE_DIR, print), sys.argv[1])
PYTHON
    cp "$ROOT"/tests/docker/{start-kafka,kafka-broker-api-versions.sh} "$context"
    docker build -q -t "$KAFKA_IMAGE" --build-arg BASE="$BASE_IMAGE" \
        -f "$ROOT/tests/docker/kafka.Dockerfile" "$context"
}

prometheus_image() {
    if [ -n "${PROMETHEUS_IMAGE:-}" ]; then return; fi
    export PROMETHEUS_IMAGE=oasr-test-prometheus:latest
    docker build -q -t "$PROMETHEUS_IMAGE" --build-arg BASE="$BASE_IMAGE" - \
        <"$HERE/prometheus.Dockerfile"
}
