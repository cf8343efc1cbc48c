# Apache Kafka from the jars in this folder, with the variables and paths of Kafka's own image that
# docker-compose.yml uses. The base is an argument, for engines without an image registry.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 1000 kafka \
    && install -d -o 1000 /var/lib/kafka/data
COPY libs /opt/kafka/libs
COPY kafka-broker-api-versions.sh /opt/kafka/bin/
COPY start-kafka /usr/local/bin/start-kafka
USER 1000
EXPOSE 9092
ENTRYPOINT ["/bin/sh", "/usr/local/bin/start-kafka"]
