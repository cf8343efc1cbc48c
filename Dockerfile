# The worker's image in two targets: `cpu`, and `cuda` (the last, so what comes without a --target).
#   docker build --target cpu -t oasr-worker:0.1.0 .
# torch's default wheels import with CUDA's libraries only, so these are in both. A small CPU image
# needs PyTorch's index of CPU wheels:
#   docker build --target cpu --build-arg TORCH_INDEX=URL -t oasr-worker:0.1.0 .
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE} AS base
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 tini \
    && rm -rf /var/lib/apt/lists/*

FROM base AS requirements
WORKDIR /src
COPY pyproject.toml ./
ARG EXTRAS="vad otel s3"
RUN EXTRAS="${EXTRAS}" python3 -c "import os, tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; extras = [r for e in os.environ['EXTRAS'].split() for r in p['optional-dependencies'][e]]; print(*p['dependencies'], *(r for r in extras if not r.startswith(p['name'])), sep='\n')" > requirements.txt \
    && grep '^torch' requirements.txt > torch.txt

FROM base AS builder
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/oasr
ENV PATH=/opt/oasr/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
WORKDIR /src
# What the worker stands on is large and changes seldom: layers of their own, which no other change
# of pyproject.toml makes anew. torch comes first, because it comes from an index of its own.
COPY --from=requirements /src/torch.txt ./
ARG TORCH_INDEX=
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "${TORCH_INDEX}"} -r torch.txt
COPY --from=requirements /src/requirements.txt ./
RUN pip install --no-cache-dir -r requirements.txt
COPY LICENSE README.md pyproject.toml ./
COPY oasr oasr
COPY worker worker
RUN pip install --no-cache-dir --no-deps . \
    && ln -s "$(python -P -c 'import pathlib, worker; print(pathlib.Path(worker.__file__).parent / "assets")')" /opt/oasr/samples \
    && pip uninstall -y pip \
    && ln -s "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" /opt/oasr/lib/site-packages \
    && rm -rf /opt/oasr/lib/site-packages/torch/include \
    && find /opt/oasr -name '*.a' -delete

# torch is not linked to these, only a GPU would have them opened.
FROM builder AS builder-cpu
WORKDIR /opt/oasr/lib/site-packages
RUN rm -rf triton triton-*.dist-info nvidia/cudnn/lib/libcudnn_*.so.* nvidia/*/lib/*.bc \
        nvidia/*/lib/libcusolver*.so.* nvidia/*/lib/libnvperf_*.so \
    && python -c "import torch, torchaudio"

FROM base AS runtime
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=
ARG SOURCE=
LABEL org.opencontainers.image.title="oasr-worker" \
      org.opencontainers.image.description="Kafka worker that turns live calls and recordings into transcripts" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}"
# Nothing is written but below /tmp, so the root file system can be read-only.
ENV PATH=/opt/oasr/bin:$PATH \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /tmp
EXPOSE 9108
# Kubernetes has probes of its own and ignores this. The start period is the model's time to load.
# With the port it costs a twentieth of reading the settings.
HEALTHCHECK --interval=15s --timeout=10s --start-period=15m --retries=4 \
    CMD ["oasr-worker", "health", "--port", "9108"]
# tini is process 1: it passes on a SIGTERM that comes before the worker can answer it
ENTRYPOINT ["tini", "--", "oasr-worker"]
CMD ["run"]

FROM runtime AS cpu
COPY --from=builder-cpu /opt/oasr /opt/oasr

FROM builder AS builder-cuda
RUN python -c "import sys, torch; sys.exit(None if torch.version.cuda else 'TORCH_INDEX has no wheels for CUDA')"

FROM runtime AS cuda
COPY --from=builder-cuda /opt/oasr /opt/oasr
