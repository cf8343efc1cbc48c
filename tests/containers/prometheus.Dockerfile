# Debian's Prometheus in the place of the project's own image, for engines without an image registry.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends prometheus \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o 65534 /prometheus
USER 65534
WORKDIR /prometheus
EXPOSE 9090
# Debian's default is a folder that is not ours
ENTRYPOINT ["prometheus", "--storage.tsdb.path=/prometheus"]
