"""Listeners of a broker: the endpoints that Kafka's `listeners` family of keys describes.

This module decides which endpoints a broker listens on, which it advertises, and which endpoint
other brokers use. Only PLAINTEXT listeners are supported today. A configuration with a TLS or SASL
listener is an error, because the broker would serve the listener without encryption. This module
looks up no host name: a listener without a host is advertised as 127.0.0.1. Two listeners may share
a port if one has an IPv4 address and the other an IPv6 address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidelog.core.config_keys import comma_list
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError
from tidelog.core.types import Endpoint

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SERVED = ("PLAINTEXT",)
_URI = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([0-9A-Za-z_.-]*)):([0-9]{1,5})")
_ADMIN = re.compile(r"(?:http://)?(?:\[([0-9A-Fa-f:.%]+)\]|([0-9A-Za-z_.-]*)):([0-9]{1,5})/?")
_LOOPBACK = "127.0.0.1"
_LOOPBACK_IPV6 = "::1"
_EVERY_IPV4 = "0.0.0.0"
_EVERY_IPV6 = "::"


@dataclass(frozen=True, slots=True)
class Listeners:
    """The listeners of one broker; an empty host in `listeners` means every interface."""

    listeners: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    inter_broker_name: str
    warnings: tuple[str, ...]


def read_listeners(properties: Mapping[str, str]) -> Listeners:
    """Read and check the listener keys; raise ConfigError naming key, value and the right form."""
    protocols = _protocol_map(properties)
    listeners = _endpoints("listeners", properties.get("listeners", "PLAINTEXT://:9092"), protocols)
    warnings: list[str] = []
    advertised_text = properties.get("advertised.listeners", "").strip()
    if advertised_text:
        named = _endpoints("advertised.listeners", advertised_text, protocols)
        _check_advertised(named, listeners, advertised_text)
        advertised = tuple(_advertise(endpoint, warnings) for endpoint in named)
        warnings.extend(_not_advertised(advertised, listeners))
    else:
        advertised = tuple(_advertise(endpoint, warnings) for endpoint in listeners)
    name = _inter_broker_name(properties, advertised)
    return Listeners(listeners, advertised, name, tuple(warnings))


def is_admin_listener(text: str) -> bool:
    """Return whether a text is valid for `admin.listener`; an empty text means no admin port."""
    match = _ADMIN.fullmatch(text)
    return text == "" or (match is not None and int(match[3]) <= 65535)


def admin_endpoint(text: str) -> Endpoint | None:
    """Return the address in `admin.listener`, None if it is empty.

    If the address has no host, only this machine can reach the admin port.
    """
    match = _ADMIN.fullmatch(text)
    if match is None:
        return None
    return Endpoint("ADMIN", match[1] or match[2] or _LOOPBACK, int(match[3]), "HTTP")


def _protocol_map(properties: Mapping[str, str]) -> dict[str, str]:
    text = properties.get("listener.security.protocol.map", "").strip()
    if not text:
        return {protocol: protocol for protocol in _PROTOCOLS}
    mapping: dict[str, str] = {}
    for entry in comma_list(text):
        name, _, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not name or protocol not in _PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map={text!r} is not valid at {entry!r}: "
                f"NAME:PROTOCOL expected, protocols {', '.join(_PROTOCOLS)}"
            )
        mapping[name] = protocol
    return mapping


def _endpoints(key: str, text: str, protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    found: dict[str, Endpoint] = {}
    for entry in comma_list(text):
        match = _URI.fullmatch(entry)
        if match is None or int(match[4]) > 65535:
            raise ConfigError(
                f"{key}={text!r} is not valid at {entry!r}: NAME://HOST:PORT expected, "
                "ports from 0 to 65535"
            )
        name = match[1].upper()
        protocol = protocols.get(name)
        if protocol is None:
            raise ConfigError(
                f"{key}={text!r}: listener {name} has no entry in listener.security.protocol.map"
            )
        if protocol not in _SERVED:
            raise ConfigError(
                f"{key}={text!r}: listener {name} asks for {protocol}, which is not supported yet;"
                f" {', '.join(_SERVED)} expected"
            )
        if name in found:
            raise ConfigError(f"{key}={text!r} names listener {name} twice")
        found[name] = Endpoint(name, match[2] or match[3] or "", int(match[4]), protocol)
    if not found:
        raise ConfigError(f"{key}={text!r} names no listener: NAME://HOST:PORT expected")
    _check_distinct_ports(key, text, found)
    return tuple(found.values())


def _check_distinct_ports(key: str, text: str, found: Mapping[str, Endpoint]) -> None:
    if key != "listeners":
        return
    hosts: dict[int, list[str]] = {}
    for endpoint in found.values():
        if endpoint.port != 0:
            hosts.setdefault(endpoint.port, []).append(endpoint.host)
    for port, sharing in hosts.items():
        if len(sharing) > 1 and sorted(map(_ip_version, sharing)) != [4, 6]:
            raise ConfigError(
                f"{key}={text!r}: port {port} is used twice; each listener needs a port of its own,"
                " or one of two an IPv4 address and the other an IPv6 address"
            )


def _ip_version(host: str) -> int:
    """Return 4 or 6 for an IP address, 0 for a host name or an empty host."""
    import ipaddress  # `ipaddress` takes 400 KiB, and few brokers need it

    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0


def _check_advertised(
    advertised: tuple[Endpoint, ...], listeners: tuple[Endpoint, ...], text: str
) -> None:
    names = [endpoint.listener for endpoint in listeners]
    for endpoint in advertised:
        if endpoint.listener not in names:
            raise ConfigError(
                f"advertised.listeners={text!r}: {endpoint.listener} is not among listeners "
                f"({', '.join(names)})"
            )
        if endpoint.host == _EVERY_IPV4:
            raise ConfigError(
                f"advertised.listeners={text!r}: a host that clients can connect to is needed "
                f"for {endpoint.listener}"
            )


def _not_advertised(advertised: tuple[Endpoint, ...], listeners: tuple[Endpoint, ...]) -> list[str]:
    names = [endpoint.listener for endpoint in advertised]
    return [
        f"listener {endpoint.listener} is not among advertised.listeners: clients that connect to"
        " it learn of no broker"
        for endpoint in listeners
        if endpoint.listener not in names
    ]


def _advertise(endpoint: Endpoint, warnings: list[str]) -> Endpoint:
    if endpoint.host == _EVERY_IPV4:
        raise ConfigError(
            f"listeners: {endpoint.listener} listens on {endpoint.host}, which cannot be "
            "advertised; set advertised.listeners"
        )
    if endpoint.host and endpoint.host != _EVERY_IPV6:
        return endpoint
    loopback = _LOOPBACK_IPV6 if endpoint.host else _LOOPBACK
    has = f"has the host {endpoint.host}" if endpoint.host else "has no host"
    warnings.append(
        f"listener {endpoint.listener} {has}: it is advertised as {loopback}, which only "
        "this machine can reach; set advertised.listeners for others"
    )
    return endpoint._replace(host=loopback)


def _inter_broker_name(properties: Mapping[str, str], advertised: tuple[Endpoint, ...]) -> str:
    """Return the name of the listener on which other brokers reach this broker.

    The listener is named by inter.broker.listener.name or security.inter.broker.protocol. If
    neither key is set, the listener is PLAINTEXT, or else the only advertised listener.
    """
    name = properties.get("inter.broker.listener.name", "").strip().upper()
    protocol = properties.get("security.inter.broker.protocol", "").strip().upper()
    names = [endpoint.listener for endpoint in advertised]
    if name and protocol:
        raise ConfigError(
            f"inter.broker.listener.name={name} and security.inter.broker.protocol={protocol}: "
            "only one of the two may be set"
        )
    if protocol and protocol not in _SERVED:
        raise ConfigError(
            f"security.inter.broker.protocol={protocol!r} is not supported yet: "
            f"{', '.join(_SERVED)} expected"
        )
    wanted = name or protocol or "PLAINTEXT"
    if wanted in names:
        return wanted
    if not name and not protocol and len(names) == 1:
        return names[0]
    raise ConfigError(
        f"inter.broker.listener.name={wanted} is not among the advertised listeners "
        f"({', '.join(names)})"
    )
