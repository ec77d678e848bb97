"""Producing and reading with kcat, the command of the system's package."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

import pytest
from tests.support.clients.samples import Headers, Record

KCAT = shutil.which("kcat")
needs_kcat = pytest.mark.skipif(KCAT is None, reason="kcat is not installed")
PATIENCE_S = 60.0
#: Maximum time until kcat sends a batch that is not full.
_LINGER_MS = 10_000

#: Between records, and between key and value: nothing that a sample contains.
_RECORD_END = b"\x1e\x1e"
_KEY_END = b"\x1f\x1f"
#: Sizes first: keys and values may hold any byte.
_FORMAT = "%T %K %S %h\\n%k%s\\n"


def run(*words: str, sent: bytes | None = None) -> bytes:
    """Run kcat to its end; what it wrote to standard output. Fails when kcat does."""
    assert KCAT is not None
    ended = subprocess.run(
        [KCAT, *words], input=sent, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert ended.returncode == 0, ended.stderr.decode(errors="replace")
    return ended.stdout


def write(
    bootstrap: str, topic: str, partition: int, codec: str, records: Sequence[Record]
) -> list[Record]:
    """Send records that have the same headers; return what was sent, without timestamps.

    An empty key or value is sent as none: kcat cannot distinguish them. All are one batch: kcat
    does not compress a batch that is smaller without, as one of a single small record is.
    """
    headers = records[0].headers
    words = ["-P", "-b", bootstrap, "-t", topic, "-p", str(partition), "-z", codec]
    words += ["-X", f"linger.ms={_LINGER_MS}", "-X", f"batch.num.messages={len(records)}"]
    words += ["-X", "acks=all", "-Z", "-D", _RECORD_END.decode(), "-K", _KEY_END.decode()]
    for name, value in headers:
        words += ["-H", name if value is None else f"{name}={value.decode()}"]
    sent = _RECORD_END.join((each.key or b"") + _KEY_END + (each.value or b"") for each in records)
    run(*words, sent=sent)
    return [Record(each.key or None, each.value or None, headers) for each in records]


def read(bootstrap: str, topic: str, partition: int) -> list[Record]:
    """Everything in one partition."""
    output = run(
        *("-C", "-b", bootstrap, "-t", topic, "-p", str(partition), "-o", "beginning", "-e", "-q"),
        *("-X", "fetch.wait.max.ms=50", "-f", _FORMAT),
    )
    found = []
    position = 0
    while position < len(output):
        end = output.index(b"\n", position)
        timestamp, key_size, value_size, headers = output[position:end].split(b" ", 3)
        key, position = _field(output, end + 1, int(key_size))
        value, position = _field(output, position, int(value_size))
        found.append(Record(key, value, _headers(headers), int(timestamp)))
        assert output[position : position + 1] == b"\n"
        position += 1
    return found


def _field(output: bytes, position: int, size: int) -> tuple[bytes | None, int]:
    if size < 0:
        return None, position
    return output[position : position + size], position + size


def _headers(text: bytes) -> Headers:
    if not text:
        return ()
    pairs = (part.split(b"=", 1) for part in text.split(b","))
    return tuple((name.decode(), None if rest == [b"NULL"] else rest[0]) for name, *rest in pairs)
