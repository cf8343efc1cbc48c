"""Which network addresses a URL from a message may lead to.

A host name says nothing about where it leads: whoever owns it may let it name a machine of ours. So
the addresses are judged, and the connection is made to one that was, not to the name.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from worker.codec import CodecError
from worker.errors import ErrorCode

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class Unresolved(Exception):
    """The name has no address now."""


@dataclass(frozen=True, slots=True)
class HostRules:
    """What of https may be reached.

    `hosts` are names, `*.` in front for all below one, with `:port` for another port than 443.
    `private_networks` may be reached although they are not public.
    """

    hosts: tuple[str, ...] = ()
    private_networks: tuple[Network, ...] = ()

    def allow(self, host: str, port: int) -> bool:
        """Whether the name is listed with the port."""
        return any(_matches(entry.lower(), host, port) for entry in self.hosts)


def _matches(entry: str, host: str, port: int) -> bool:
    name, _, entry_port = entry.partition(":")
    if port != int(entry_port or 443):
        return False
    return host.endswith(name[1:]) if name.startswith("*.") else host == name


def resolve(host: str, port: int, rules: HostRules) -> list[str]:
    """The addresses of a host; all of them must be allowed.

    Raises CodecError `uri_forbidden` for a name or an address that is not, Unresolved if there is
    none.
    """
    if not rules.allow(host, port):
        raise CodecError(ErrorCode.URI_FORBIDDEN, "the host is not listed in files.https_hosts")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unresolved("the host name cannot be resolved") from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not all(is_allowed(address, rules.private_networks) for address in addresses):
        raise CodecError(ErrorCode.URI_FORBIDDEN, "the host has an address that is not public")
    return addresses


def is_allowed(text: str, private_networks: Sequence[Network]) -> bool:
    """Whether an address is a public one, or lies in one of the networks."""
    address: Address = ipaddress.ip_address(text.partition("%")[0])
    for inner in (address, *_embedded(address)):
        if any(inner in network for network in private_networks):
            continue
        if not inner.is_global or inner.is_multicast or inner.is_reserved:
            return False
    return True


def _embedded(address: Address) -> list[Address]:
    """IPv4 addresses to which gateways lead from an IPv6 address."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    inner: list[Address] = []
    if address.ipv4_mapped is not None:
        inner.append(address.ipv4_mapped)
    if address.sixtofour is not None:
        inner.append(address.sixtofour)
    if address.teredo is not None:
        inner.extend(address.teredo)
    if address in _NAT64:
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    return inner
