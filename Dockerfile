# The worker's image, for CPUs and GPUs: torch's default wheels bring CUDA's libraries along and run
# on a plain CPU too. For a small image that only computes on the CPU, name PyTorch's CPU wheel index:
#   docker build --build-arg TORCH_INDEX=URL -t oasr-worker:0.1.0-cpu .
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE} AS base
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 tini \
    && rm -rf /var/lib/apt/lists/*

FROM base AS builder
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/oasr
ENV PATH=/opt/oasr/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
WORKDIR /src
# What the worker stands on changes seldom and is large: layers of their own, torch first, because
# it comes from an index of its own.
COPY pyproject.toml ./
RUN python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" > requirements.txt \
    && grep '^torch' requirements.txt > torch.txt
ARG TORCH_INDEX=
RUN pip install ${TORCH_INDEX:+--index-url "${TORCH_INDEX}"} -r torch.txt
RUN pip install -r requirements.txt
COPY LICENSE README.md ./
COPY oasr oasr
COPY worker worker
RUN pip install --no-deps . \
    && ln -s "$(cd / && python -c 'import pathlib, worker; print(pathlib.Path(worker.__file__).parent / "assets")')" /opt/oasr/samples \
    && pip uninstall -y pip

FROM base AS runtime
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="oasr-worker" \
      org.opencontainers.image.description="Kafka worker that turns live calls and recordings into transcripts" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=builder /opt/oasr /opt/oasr
# Nothing is written but below /tmp, so the root file system can be read-only.
ENV PATH=/opt/oasr/bin:$PATH \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /tmp
EXPOSE 9108
# Kubernetes has probes of its own and ignores this. The start period is the model's time to load.
HEALTHCHECK --interval=15s --timeout=5s --start-period=15m --retries=4 \
    CMD ["python", "-c", "import http.client, sys; c = http.client.HTTPConnection('127.0.0.1', 9108, timeout=4); c.request('GET', '/livez'); sys.exit(c.getresponse().status != 200)"]
# tini is process 1: it passes on a SIGTERM that comes before the worker can answer it
ENTRYPOINT ["tini", "--", "oasr-worker"]
CMD ["run"]
