# Apache Kafka from the jars in this folder, configured by the environment like Kafka's own image:
# KAFKA_NODE_ID becomes node.id. The base is an argument, for engines without an image registry.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY libs /opt/kafka/libs
COPY start-kafka /usr/local/bin/start-kafka
RUN useradd --system kafka
USER kafka
EXPOSE 9092
ENTRYPOINT ["/bin/sh", "/usr/local/bin/start-kafka"]
