"""The group `kafka` of `worker.settings`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, SecretStr, model_validator

from worker.settings_groups import Group

ClientValue = str | int | float | bool

# What the commit rule and the order of records stand on; everything else may be tuned.
PROTECTED: Final = frozenset(
    (
        *("bootstrap.servers", "metadata.broker.list", "group.id", "group.protocol"),
        *("group.instance.id", "enable.auto.commit", "enable.auto.offset.store"),
        *("auto.offset.reset", "isolation.level", "partition.assignment.strategy"),
        *("partitioner", "enable.idempotence", "acks", "request.required.acks"),
        *(
            "transactional.id",
            "transaction.timeout.ms",
            "session.timeout.ms",
            "heartbeat.interval.ms",
        ),
        *("max.poll.interval.ms", "message.timeout.ms", "delivery.timeout.ms"),
    )
)
_SECRET_WORDS: Final = ("password", "secret", "sasl.jaas")
_SESSION_TIMEOUT_MS: Final = 45_000


class Kafka(Group):
    """How to reach the brokers and join the groups."""

    bootstrap_servers: Annotated[str, Field(min_length=1)]
    """Brokers to start from, `host:port`, separated by commas."""
    group: Annotated[str, Field(min_length=1)] = "oasr-worker"
    """Consumer group of the chunk topic; also in the `ce_source` of all records."""
    files_group: str | None = None
    """Consumer group of the file topic; default: the group with `.files` behind it."""
    group_protocol: Literal["classic", "consumer"] = "classic"
    """`consumer` is KIP-848, from brokers 4.0 on."""
    group_instance_id: str | None = None
    """Static membership: a name that no other member has and that survives restarts."""
    auto_offset_reset: Literal["earliest", "latest", "error"] = "earliest"
    """Where to begin on a topic on which the group never committed."""
    session_timeout_ms: Annotated[int, Field(ge=1_000)] | None = None
    """Default 45 s with the classic protocol; with `consumer` the broker decides."""
    max_poll_interval_ms: Annotated[int, Field(ge=10_000)] = 300_000
    """A loop that does not turn for this long loses its partitions."""
    stalled_after_ms: Annotated[int, Field(ge=1_000)] = 60_000
    """A partition from which nothing comes for this long though there are messages is sought anew;
    if that does not help, the process ends."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """How connections are secured."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = None
    """Needed by the SASL protocols."""
    sasl_username: str | None = None
    """User of PLAIN and SCRAM."""
    sasl_password: SecretStr | None = None
    """Password of PLAIN and SCRAM."""
    sasl_password_file: Path | None = None
    """File that holds this password instead, as a mounted secret does."""
    ssl_ca_location: Path | None = None
    """File of the authorities that sign the brokers' certificates."""
    ssl_certificate_location: Path | None = None
    """File of the client's certificate."""
    ssl_key_location: Path | None = None
    """File of the client's key."""
    ssl_key_password: SecretStr | None = None
    """Password of the client's key."""
    ssl_key_password_file: Path | None = None
    """File that holds this password instead."""
    client: dict[str, ClientValue] = Field(default_factory=dict)
    """librdkafka properties of all clients, as JSON."""
    consumer: dict[str, ClientValue] = Field(default_factory=dict)
    """librdkafka properties of the consumers, as JSON."""
    producer: dict[str, ClientValue] = Field(default_factory=dict)
    """librdkafka properties of the producers, as JSON."""

    @property
    def classic_session_timeout_ms(self) -> int | None:
        """The session time-out that the client states; None where the broker decides."""
        if self.group_protocol == "consumer":
            return None
        return self.session_timeout_ms or _SESSION_TIMEOUT_MS

    @property
    def sasl_secret(self) -> SecretStr | None:
        """The password of PLAIN and SCRAM, wherever it stands."""
        return _secret("sasl_password", self.sasl_password, self.sasl_password_file)

    @property
    def ssl_key_secret(self) -> SecretStr | None:
        """The password of the client's key, wherever it stands."""
        return _secret("ssl_key_password", self.ssl_key_password, self.ssl_key_password_file)

    @model_validator(mode="after")
    def _secrets_are_there(self) -> Kafka:
        _ = self.sasl_secret, self.ssl_key_secret
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Kafka:
        if self.security_protocol.startswith("SASL") and self.sasl_mechanism is None:
            raise ValueError(f"security_protocol {self.security_protocol} needs sasl_mechanism")
        if self.sasl_mechanism and not self.security_protocol.startswith("SASL"):
            raise ValueError("sasl_mechanism needs a SASL security_protocol")
        if self.group_protocol == "consumer" and self.session_timeout_ms is not None:
            raise ValueError("session_timeout_ms is the broker's with group_protocol consumer")
        if self.max_poll_interval_ms < (self.classic_session_timeout_ms or 0):
            raise ValueError("max_poll_interval_ms must not be below session_timeout_ms")
        return self

    @model_validator(mode="after")
    def _no_protected_properties(self) -> Kafka:
        for name in (*self.client, *self.consumer, *self.producer):
            if name in PROTECTED:
                raise ValueError(f"the property {name} is the worker's own")
            if any(word in name for word in _SECRET_WORDS):
                raise ValueError(f"the property {name} holds a secret: use the settings for it")
        return self


def _secret(name: str, value: SecretStr | None, file: Path | None) -> SecretStr | None:
    """The value, or the first line of the file; ValueError without quoting either."""
    if file is None:
        return value
    if value is not None:
        raise ValueError(f"{name} and {name}_file exclude each other")
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ValueError(f"{name}_file cannot be read: {reason}") from None
    if not lines or not lines[0]:
        raise ValueError(f"{name}_file is empty")
    return SecretStr(lines[0])
