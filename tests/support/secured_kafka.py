"""A Kafka that wants to know who asks: SCRAM over TLS, client certificates, and ACLs.

Nobody may do anything that no ACL allows. The plain listener is the administrator's: tests make
topics and rights, produce and read through it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.support.certificates import Authority
from tests.support.kafka_clients import Topics, admin_client
from worker.devkafka_node import Node, cluster_id, free_ports, kafka_program

USER, PASSWORD = "worker", "s3cret-of-the-worker"
CERTIFIED_USER, KEY_PASSWORD = "certified", "s3cret-of-the-key"
_HOST = "127.0.0.1"
_HEAP_MIB = 512
_ADMIN_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Right:
    """What an ACL allows a user to do; `name` is a prefix where `is_prefix`."""

    operation: AclOperation
    resource: ResourceType
    name: str
    is_prefix: bool = False

    def binding(self, user: str) -> AclBinding:
        """The ACL for the user, from any host."""
        pattern = ResourcePatternType.PREFIXED if self.is_prefix else ResourcePatternType.LITERAL
        return AclBinding(
            self.resource,
            self.name,
            pattern,
            f"User:{user}",
            "*",
            self.operation,
            AclPermissionType.ALLOW,
        )


def least_rights(topics: Topics, group: str, exactly_once: bool) -> dict[str, Right]:
    """What a worker needs, by the names of the rows in `docs/security.md`."""

    def topic(operation: AclOperation, name: str) -> Right:
        return Right(operation, ResourceType.TOPIC, name)

    read, write = AclOperation.READ, AclOperation.WRITE
    rights = {
        "read chunks": topic(read, topics.chunks),
        "read files": topic(read, topics.files),
        "write transcripts": topic(write, topics.transcripts),
        "write partials": topic(write, topics.partials),
        "write events": topic(write, topics.events),
        "write dead letters": topic(write, topics.dead_letters),
        "read state": topic(read, topics.state),
        "write state": topic(write, topics.state),
        "read the group of calls": Right(read, ResourceType.GROUP, group),
        "read the group of files": Right(read, ResourceType.GROUP, f"{group}.files"),
    }
    if exactly_once:
        for lane, name in (("calls", group), ("files", f"{group}.files")):
            rights[f"write transactions of {lane}"] = Right(
                write, ResourceType.TRANSACTIONAL_ID, f"{name}-", is_prefix=True
            )
    return rights


def command_rights(topics: Topics, group: str) -> dict[str, list[Right]]:
    """What commands need, by the names of the rows in `docs/security.md`; two of `produce`."""

    def on_topics(operation: AclOperation, *names: str) -> list[Right]:
        return [Right(operation, ResourceType.TOPIC, name) for name in names]

    read, write, describe = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
    names = [str(getattr(topics, field.name)) for field in fields(topics)]
    onlooker = Right(describe, ResourceType.GROUP, "oasr-onlooker-", is_prefix=True)
    letters = [*on_topics(read, topics.dead_letters, topics.files), onlooker]
    return {
        "topics": on_topics(describe, *names),
        "produce": on_topics(write, topics.chunks),
        "produce files": on_topics(write, topics.files),
        "sessions list": [
            Right(describe, ResourceType.GROUP, group),
            *on_topics(read, topics.chunks, topics.state),
        ],
        "dead-letters list": letters,
        "dead-letters show": letters,
        "dead-letters replay": [*letters, *on_topics(write, topics.files)],
    }


class SecuredNode(Node):
    """A node that only signed-in users with ACLs may use, besides the administrator."""

    def __init__(self, program: list[str], folder: Path) -> None:
        super().__init__(program, folder, cluster_id())
        self.authority = Authority(folder / "tls")
        self._server = self.authority.sign("broker", "IP:127.0.0.1,DNS:localhost")
        self.client = self.authority.sign(CERTIFIED_USER, password=KEY_PASSWORD)
        self._sasl_port, self._tls_port = free_ports(2)
        scram = f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"
        self.format_options = ("--add-scram", scram)

    @property
    def sasl_address(self) -> str:
        """Where users sign in with SCRAM over TLS."""
        return f"{_HOST}:{self._sasl_port}"

    @property
    def tls_address(self) -> str:
        """Where users show their certificates."""
        return f"{_HOST}:{self._tls_port}"

    def properties(self) -> dict[str, str]:
        """Three listeners for clients, and an authorizer."""
        properties = super().properties()
        more = f",SASL_SSL://{self.sasl_address},SSL://{self.tls_address}"
        for name in ("listeners", "advertised.listeners"):
            properties[name] += more
        properties["listener.security.protocol.map"] += ",SASL_SSL:SASL_SSL,SSL:SSL"
        return properties | {
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._server.both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }

    def allow(self, rights: Iterable[Right], user: str = USER) -> None:
        """Give a user rights."""
        with admin_client(self.address) as admin:
            futures = admin.create_acls([right.binding(user) for right in rights])
            for future in futures.values():
                future.result(_ADMIN_TIMEOUT_S)

    def forbid_all(self) -> None:
        """Take all rights from all users."""
        everything = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        with admin_client(self.address) as admin:
            for future in admin.delete_acls([everything]).values():
                future.result(_ADMIN_TIMEOUT_S)

    def sasl_settings(self, mode: str = "at-least-once") -> dict[str, str]:
        """What a worker is told that signs in by SCRAM."""
        return {
            "OASR_KAFKA__BOOTSTRAP_SERVERS": self.sasl_address,
            "OASR_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
            "OASR_KAFKA__SASL_MECHANISM": "SCRAM-SHA-512",
            "OASR_KAFKA__SASL_USERNAME": USER,
            "OASR_KAFKA__SASL_PASSWORD": PASSWORD,
            "OASR_KAFKA__SSL_CA_LOCATION": str(self.authority.certificate),
            "OASR_DELIVERY__MODE": mode,
        }

    def tls_settings(self, mode: str = "at-least-once") -> dict[str, str]:
        """What a worker is told that shows a certificate whose key has a password."""
        return {
            "OASR_KAFKA__BOOTSTRAP_SERVERS": self.tls_address,
            "OASR_KAFKA__SECURITY_PROTOCOL": "SSL",
            "OASR_KAFKA__SSL_CA_LOCATION": str(self.authority.certificate),
            "OASR_KAFKA__SSL_CERTIFICATE_LOCATION": str(self.client.certificate),
            "OASR_KAFKA__SSL_KEY_LOCATION": str(self.client.key),
            "OASR_KAFKA__SSL_KEY_PASSWORD": KEY_PASSWORD,
            "OASR_DELIVERY__MODE": mode,
        }


@contextmanager
def secured_kafka(cache_dir: Path) -> Iterator[SecuredNode]:
    """A fresh secured node for the length of the block."""
    folder = Path(tempfile.mkdtemp(prefix="oasr-secured-"))
    node = SecuredNode(kafka_program(cache_dir, lambda _line: None, _HEAP_MIB), folder / "node")
    try:
        node.start()
        node.await_ready()
        yield node
    finally:
        node.stop()
        shutil.rmtree(folder, ignore_errors=True)
