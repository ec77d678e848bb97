"""Parsing of `bootstrap.servers` as Kafka writes it: `host:port,host:port`, IPv6 in brackets.

The parser contacts no address. An invalid list raises a ConfigError that states the right form.
"""

from __future__ import annotations

from tidelog.client.steps import Address
from tidelog.core.errors import ConfigError


def parse_bootstrap(servers: str) -> tuple[Address, ...]:
    """Return the addresses in order, without repetitions. Raises ConfigError."""
    addresses: list[Address] = []
    for item in servers.split(","):
        text = item.strip()
        if not text:
            continue
        address = _parse_address(text, servers)
        if address not in addresses:
            addresses.append(address)
    if not addresses:
        raise ConfigError(
            f"bootstrap.servers is {servers!r}: expected host:port[,host:port...],"
            " for example 127.0.0.1:9092"
        )
    return tuple(addresses)


def _parse_address(text: str, servers: str) -> Address:
    _scheme, separator, rest = text.rpartition("://")  # Kafka accepts PLAINTEXT://host:port, too
    if separator and _scheme.upper() != "PLAINTEXT":
        raise ConfigError(
            f"bootstrap.servers has {text!r}: only PLAINTEXT listeners are supported, without TLS"
            " or SASL"
        )
    host, colon, port_text = rest.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(
            f"bootstrap.servers has {text!r}: an IPv6 address needs brackets, as in [::1]:9092"
        )
    if not colon or not host:
        raise ConfigError(
            f"bootstrap.servers is {servers!r}: {text!r} lacks a host or a port;"
            " expected host:port, for example 127.0.0.1:9092"
        )
    if not (port_text.isascii() and port_text.isdigit() and 0 < int(port_text) < 65536):
        raise ConfigError(
            f"bootstrap.servers is {servers!r}: the port of {text!r} must be a number from 1 to"
            " 65535"
        )
    return Address(host, int(port_text))
