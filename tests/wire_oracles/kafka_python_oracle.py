"""What kafka-python reads in a message's bytes, and the bytes it writes for the same values."""

from __future__ import annotations

import uuid
from importlib import import_module
from typing import Any

MODULES = [
    "kafka.protocol.producer.produce",
    "kafka.protocol.producer.transaction",
    "kafka.protocol.consumer.fetch",
    "kafka.protocol.consumer.group",
    "kafka.protocol.consumer.offsets",
    "kafka.protocol.consumer.metadata",
    "kafka.protocol.metadata.metadata",
    "kafka.protocol.metadata.api_versions",
    "kafka.protocol.metadata.find_coordinator",
    "kafka.protocol.admin.topics",
    "kafka.protocol.admin.cluster",
    "kafka.protocol.admin.configs",
    "kafka.protocol.admin.groups",
    "kafka.protocol.admin.acl",
    "kafka.protocol.admin.client_quotas",
    "kafka.protocol.admin.users",
    "kafka.protocol.admin.transactions",
    "kafka.protocol.sasl",
]


def message_class(name: str) -> Any:
    """kafka-python's class of a message, None where it has none."""
    for module in map(import_module, MODULES):
        if hasattr(module, name):
            return getattr(module, name)
    return None


def known_versions(name: str) -> list[int]:
    """The versions of a message that kafka-python declares valid (older ones it guesses)."""
    found = message_class(name)
    if found is None:
        return []
    low, high = map(
        int, (found.json["validVersions"] + "-" + found.json["validVersions"]).split("-")[:2]
    )
    return list(range(low, high + 1))


def plain(value: Any) -> Any:
    """A value without kafka-python's types: numbers, strings, hex for bytes, lists, dicts."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"hex": bytes(value).hex()}
    if isinstance(value, uuid.UUID):
        return {"hex": value.bytes.hex()}
    if isinstance(value, dict):
        plain_values = {name: plain(each) for name, each in value.items()}
        if "authorized_operations" in value:
            plain_values["authorized_operations"] = bits(value["authorized_operations"])
        return plain_values
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def bits(positions: set[int] | None) -> int:
    """A 32-bit field that kafka-python shows as the set of its ones; None for the top one alone."""
    field = sum(1 << each for each in ({31} if positions is None else positions))
    return field - (1 << 32) if field >> 31 else field


def examine(name: str, version: int, data: bytes) -> tuple[Any, bytes]:
    """The values that kafka-python reads in `data`, and what it writes for them."""
    message = message_class(name).decode(data, version=version)
    message._header = None  # decoding leaves this unset, encoding looks at it
    return plain(message.to_dict(json=False)), bytes(message.encode(version=version))


def examine_data(name: str, version: int, data: bytes) -> tuple[Any, bytes]:
    """As `examine`, for a struct behind its version."""
    value = message_class(name).decode(data)
    return plain(value.to_dict(json=False)), bytes(value.encode(version=version))


def framed(name: str, version: int, body: bytes, correlation_id: int, client_id: str) -> bytes:
    """kafka-python's whole frame for a body: size, header, body."""
    message = message_class(name).decode(body, version=version)
    message._header = None
    if message.is_request():
        message.API_VERSION = version
        message.with_header(correlation_id=correlation_id, client_id=client_id)
        return bytes(message.encode(header=True, framed=True))
    message.with_header(correlation_id=correlation_id)
    return bytes(message.encode(header=True, framed=True))
