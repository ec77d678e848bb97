"""What kio reads in a message's bytes, and the bytes it writes for the same values.

Runs inside the tests with the current kio, and as a process of its own under kio 0.5.0 (the last
one with the APIs between brokers): a line of JSON in, a line of JSON out. Imports nothing of ours.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import io
import json
import sys
import uuid
from importlib import import_module
from pathlib import Path
from typing import Any

import kio.schema
from kio.serial import entity_reader, entity_writer

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)  # noqa: UP017


def known_versions(module: str) -> list[int]:
    """The versions of an API that this kio has; `module` is its name in snake case."""
    root = Path(next(iter(kio.schema.__path__))) / module
    return sorted(int(each.name[1:]) for each in root.glob("v*") if each.name[1:].isdigit())


def entity(module: str, version: int, direction: str) -> Any:
    """kio's class of a message; `direction` "data": of a struct that is none."""
    name = "".join(word.capitalize() for word in module.split("_"))
    if direction != "data":
        name += direction.capitalize()
    return getattr(import_module(f"kio.schema.{module}.v{version}.{direction}"), name)


def read(entity_class: Any, data: bytes) -> Any:
    """The message in `data`, all of which must be used. kio changed its reader since 0.5."""
    try:
        value, size = entity_reader(entity_class)(data, 0)
    except TypeError:
        stream = io.BytesIO(data)
        older: Any = entity_reader(entity_class)
        value, size = older(stream), stream.tell()
    assert size == len(data), f"kio read {size} of {len(data)} bytes"
    return value


def write(entity_class: Any, value: Any) -> bytes:
    """kio's bytes."""
    stream = io.BytesIO()
    entity_writer(entity_class)(stream, value)
    return stream.getvalue()


def plain(value: Any) -> Any:
    """A value without kio's types: numbers, strings, hex for bytes, lists, dicts."""
    if value is None or isinstance(value, (bool, float, str)):
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"hex": bytes(value).hex()}
    if isinstance(value, uuid.UUID):
        return {"hex": value.bytes.hex()}
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(milliseconds=1)
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}


def examine(module: str, version: int, direction: str, data: bytes) -> tuple[Any, bytes]:
    """The values that kio reads in `data`, and what it writes for them."""
    entity_class = entity(module, version, direction)
    value = read(entity_class, data)
    return plain(value), write(entity_class, value)


def examine_data(module: str, version: int, data: bytes) -> tuple[Any, bytes]:
    """As `examine`, for a struct behind its version, which kio leaves to its caller."""
    entity_class = entity(module, version, "data")
    value = read(entity_class, data[2:])
    return plain(value), data[:2] + write(entity_class, value)


def main() -> None:
    """Answers requests on standard input until it ends."""
    for line in sys.stdin:
        ask = json.loads(line)
        if "known" in ask:
            print(json.dumps(known_versions(ask["known"])), flush=True)  # noqa: T201
            continue
        try:
            values, again = examine(
                ask["module"], ask["version"], ask["direction"], bytes.fromhex(ask["data"])
            )
            answer = {"values": values, "data": again.hex()}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
