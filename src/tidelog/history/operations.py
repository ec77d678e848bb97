"""The format of histories: JSON lines, each with one operation of one process (a client).

`docs/reference/history.md` describes the format. Reading is strict, because a misspelt field would
silently weaken the judgement. Every invalid line raises MalformedHistory with its number, its fault
and the expected form. Lines are read one by one, and their length is limited.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, BinaryIO, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError

#: Outcomes of an operation: a known effect; certainly no effect; possibly an effect, now or later.
OK: Final = "ok"
FAIL: Final = "fail"
INFO: Final = "info"
OUTCOMES: Final = (OK, FAIL, INFO)

#: Maximum length of a line; a longer line is rejected before it is read completely.
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
#: Largest valid offset or time: offsets and times in Kafka's messages are signed 64-bit integers.
_MAX_NUMBER: Final = (1 << 63) - 1

_decode = json.JSONDecoder().decode
_EVERY: Final = ("process", "kind", "begin", "end", "outcome", "note")
#: Fields of each kind of operation, in addition to the fields of all kinds.
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "send": ("records", "acks", "idempotent"),
    "poll": ("records",),
    "txn": ("steps",),
    "assign": ("partitions",),
    "seek": ("partitions",),
    "subscribe": ("topics", "group"),
    "commit": ("offsets", "group"),
    "log_start": ("partitions",),
    "compact": ("topics",),
    "delete": ("topics",),
}
_OPTIONAL: Final = frozenset(("note", "acks", "idempotent", "group"))
_ALLOWED: Final = {kind: frozenset((*_EVERY, *fields)) for kind, fields in KINDS.items()}
_REQUIRED: Final = {kind: fields - _OPTIONAL for kind, fields in _ALLOWED.items()}
_ACKS: Final = (-1, 0, 1)
#: Maximum number of a send's or poll's records in the text of `describe`.
_SHOWN_RECORDS: Final = 4

#: Records by partition name; a record is (offset or None, value), then optional key and tombstone
#: flag.
Records = Mapping[str, Sequence[Sequence[Any]]]


class MalformedHistory(TidelogError):
    """The error for a line that is no operation: its number, its fault and the expected form."""


@dataclass(slots=True)
class Operation:
    """One operation with times in ns of one clock; `end` is None if the operation never ended."""

    process: str
    kind: str
    begin: int
    end: int | None
    outcome: str = OK
    #: Records of a send or poll.
    records: Records = field(default_factory=dict)
    #: Sends and polls of a transaction, in order.
    steps: Sequence[tuple[str, Records]] = ()
    #: Offsets of assign, seek, log_start and commit, by partition; None if the client named no
    #: offset.
    partitions: Mapping[str, int | None] = field(default_factory=dict)
    topics: Sequence[str] = ()
    group: str = ""
    acks: int = -1
    idempotent: bool = False
    note: str = ""


@functools.lru_cache(maxsize=65_536)
def split_partition(name: str) -> tuple[str, int]:
    """Return (topic, number) from a partition's name; a topic id in the name stays in `topic`.

    Raises ValueError if the text is no name of a partition.
    """
    topic, dash, number = name.rpartition("-")
    if not topic or not dash or not (number.isascii() and number.isdigit()):
        raise ValueError(name)
    return topic, int(number)


def read_history(lines: BinaryIO) -> Iterator[tuple[int, Operation]]:
    """Yield (line number, operation) of a file; skip empty lines.

    Raises MalformedHistory at the first line that is no operation.
    """
    number = 0
    while line := lines.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise MalformedHistory(
                f"line {number} has more than {MAX_LINE_BYTES} bytes: one operation a line"
            )
        if not line.isspace():
            yield number, parse(line, number)


def parse(text: bytes | str, line: int) -> Operation:
    """Return the operation in a line; raise MalformedHistory if the line is invalid."""
    try:
        document = _decode(text.decode() if isinstance(text, bytes) else text)
    except RecursionError:
        raise MalformedHistory(f"line {line} is nested too deeply for an operation") from None
    except ValueError as error:
        raise MalformedHistory(
            f"line {line} is no JSON ({error}); was it cut short? Each line is a whole object"
        ) from None
    try:
        return _operation(document)
    except _WrongError as wrong:
        raise MalformedHistory(f"line {line}: {wrong}") from None


class _WrongError(ValueError):
    """The error for a wrong field of a line: the fault, and the expected form."""


def _operation(document: Any) -> Operation:
    if type(document) is not dict:
        raise _WrongError(f"{_short(document)} is no operation: a JSON object expected")
    kind = document.get("kind")
    if type(kind) is not str or kind not in KINDS:
        raise _WrongError(f"the kind {_short(kind)} is none of {', '.join(KINDS)}")
    if not _REQUIRED[kind] <= document.keys() <= _ALLOWED[kind]:
        raise _WrongError(_about_fields(document, kind))
    operation = _framed(document, kind)
    if kind in ("send", "poll"):
        operation.records = _records(document["records"], is_send=kind == "send")
        if kind == "send":
            operation.acks = _acks(document.get("acks", -1))
            operation.idempotent = _truth("idempotent", document.get("idempotent", False))
    elif kind == "txn":
        operation.steps = _steps(document["steps"])
    elif kind == "commit":
        operation.partitions = _offsets("offsets", document["offsets"], may_be_open=False)
    elif "partitions" in document:
        operation.partitions = _offsets(
            "partitions", document["partitions"], may_be_open=kind != "log_start"
        )
    else:
        operation.topics = _topics(document["topics"])
    return operation


def _about_fields(document: dict[str, Any], kind: str) -> str:
    """Return a message about unknown or missing field names of an operation."""
    known = (*_EVERY, *KINDS[kind])
    for name in document:
        if name not in known:
            return f"a {kind} has no field {_short(name)}: its fields are {', '.join(known)}"
    missing = [name for name in known if name in _REQUIRED[kind] and name not in document]
    return f"a {kind} needs the field {' and '.join(missing)}"


def _framed(document: dict[str, Any], kind: str) -> Operation:
    """Return an operation that has only the fields which all kinds of operations have."""
    process, begin, end = document["process"], document["begin"], document["end"]
    outcome = document["outcome"]
    if type(process) is not str or not process:
        raise _WrongError(f"`process` is {_short(process)}: a name expected, a text")
    if outcome not in OUTCOMES:
        raise _WrongError(
            f"`outcome` is {_short(outcome)}: ok, fail (certainly without effect) or info (not"
            " known) expected"
        )
    if type(begin) is not int or not 0 <= begin <= _MAX_NUMBER:
        _number("begin", begin)
    if type(end) is int and begin <= end <= _MAX_NUMBER:
        pass
    elif end is not None:
        if _number("end", end) < begin:
            raise _WrongError(f"it ends at {end}, before it begins at {begin}")
    elif outcome != INFO:
        raise _WrongError(f"`end` is null, which only an operation of outcome info has: {outcome}")
    operation = Operation(process, kind, begin, end, outcome)
    for name in ("group", "note"):
        if name in document:
            if type(document[name]) is not str:
                raise _WrongError(f"`{name}` is {_short(document[name])}: a text expected")
            setattr(operation, name, document[name])
    return operation


def _number(name: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_NUMBER:
        unit = " of nanoseconds" if name in ("begin", "end") else ""
        raise _WrongError(f"`{name}` is {_short(value)}: a number{unit} from 0 on expected")
    return value


def _truth(name: str, value: Any) -> bool:
    if type(value) is not bool:
        raise _WrongError(f"`{name}` is {_short(value)}: true or false expected")
    return value


def _acks(value: Any) -> int:
    if type(value) is not int or value not in _ACKS:
        raise _WrongError(f"`acks` is {_short(value)}: -1 (all), 0 or 1 expected")
    return value


def _partition(name: Any) -> str:
    try:
        split_partition(name)
    except (ValueError, TypeError, AttributeError):
        raise _WrongError(
            f"{_short(name)} is no partition: topic-number or topic@id-number expected"
        ) from None
    return str(name)


def _records(value: Any, *, is_send: bool) -> Records:
    if type(value) is not dict:
        raise _WrongError(f"`records` is {_short(value)}: lists of records by partition expected")
    for name, records in value.items():
        _partition(name)
        if type(records) is not list:
            raise _WrongError(f"the records of {name} are {_short(records)}: a list expected")
        for record in records:
            # Most records by far are plain (offset, value) pairs, which need no further check.
            if (
                type(record) is not list
                or len(record) != 2
                or type(record[0]) is not int
                or type(record[1]) not in (int, str)
                or not 0 <= record[0] <= _MAX_NUMBER
            ):
                _check_record(name, record, is_send=is_send)
    found: Records = value
    return found


def _check_record(name: str, record: Any, *, is_send: bool) -> None:
    right = "[offset, value], [offset, value, key] or [offset, value, key, true for a tombstone]"
    if type(record) is not list or not 2 <= len(record) <= 4:
        raise _WrongError(f"{_short(record)} is no record of {name}: {right} expected")
    offset, value, *rest = record
    if offset is None and is_send:
        pass
    elif type(offset) is not int or not 0 <= offset <= _MAX_NUMBER:
        unknown = ", or null if the client does not know it," if is_send else ""
        raise _WrongError(
            f"the offset of {_short(record)} in {name} is {_short(offset)}: a number from 0 on"
            f"{unknown} expected"
        )
    if type(value) not in (int, str):
        raise _WrongError(
            f"the value of {_short(record)} in {name} is {_short(value)}: a text or a whole number"
            " expected, which no other record of the history has"
        )
    if rest and type(rest[0]) is not str:
        raise _WrongError(f"the key of {_short(record)} in {name} is {_short(rest[0])}, no text")
    if len(rest) == 2:
        _truth("tombstone", rest[1])


def _steps(value: Any) -> Sequence[tuple[str, Records]]:
    if type(value) is not list:
        raise _WrongError(f"`steps` is {_short(value)}: a list of sends and polls expected")
    steps = []
    for step in value:
        kind = step.get("kind") if type(step) is dict else None
        if kind not in ("send", "poll") or step.keys() != {"kind", "records"}:
            raise _WrongError(
                f"{_short(step)} is no step: an object with the fields kind (send or poll) and"
                " records expected"
            )
        steps.append((kind, _records(step["records"], is_send=kind == "send")))
    return steps


def _offsets(field_name: str, value: Any, *, may_be_open: bool) -> Mapping[str, int | None]:
    if type(value) is not dict:
        raise _WrongError(f"`{field_name}` is {_short(value)}: offsets by partition expected")
    for name, offset in value.items():
        _partition(name)
        if offset is not None or not may_be_open:
            _number(f"{field_name}.{name}", offset)
    found: Mapping[str, int | None] = value
    return found


def _topics(value: Any) -> Sequence[str]:
    if type(value) is not list or not all(type(each) is str and each for each in value):
        raise _WrongError(f"`topics` is {_short(value)}: a list of names expected")
    return value


def _short(value: Any, limit: int = 80) -> str:
    """Return a value as JSON, shortened for a message."""
    text = json.dumps(value)
    return text if len(text) <= limit else text[:limit] + "…"


def encode(operation: Operation) -> str:
    """Return the line of an operation, without the line end."""
    return json.dumps(document_of(operation), separators=(",", ":"))


def document_of(operation: Operation) -> dict[str, Any]:
    """Return the fields of an operation's line."""
    document: dict[str, Any] = {
        "process": operation.process,
        "kind": operation.kind,
        "begin": operation.begin,
        "end": operation.end,
        "outcome": operation.outcome,
    }
    for name in KINDS[operation.kind]:
        if name == "offsets":
            document[name] = operation.partitions
        elif name == "steps":
            document[name] = [
                {"kind": kind, "records": records} for kind, records in operation.steps
            ]
        else:
            document[name] = getattr(operation, name)
    if operation.note:
        document["note"] = operation.note
    return document


def describe(operation: Operation, since: int = 0) -> str:
    """Return an operation as a readable line; times are seconds after `since`."""
    begin = f"{(operation.begin - since) / 1e9:.6f}"
    end = "never" if operation.end is None else f"{(operation.end - since) / 1e9:.6f} s"
    if operation.kind == "txn":
        content = " ".join(f"{kind} {_records_text(records)}" for kind, records in operation.steps)
    elif operation.kind in ("send", "poll"):
        content = _records_text(operation.records)
    elif operation.partitions:
        content = " ".join(f"{name}: {offset}" for name, offset in operation.partitions.items())
    else:
        content = " ".join(operation.topics)
    extra = ""
    if operation.kind == "send":
        extra = f", acks={operation.acks}, {'' if operation.idempotent else 'not '}idempotent"
    note = f" ({operation.note})" if operation.note else ""
    return (
        f"{operation.process} {operation.kind} {content or '(nothing)'}:"
        f" {operation.outcome}{extra}, {begin} s to {end}{note}"
    )


def _records_text(records: Records) -> str:
    parts = []
    for name, listed in records.items():
        shown = [f"{_offset(each[0])}={_short(each[1])}" for each in listed]
        if len(shown) > _SHOWN_RECORDS:
            left_out = len(shown) - _SHOWN_RECORDS
            shown[_SHOWN_RECORDS - 1 : -1] = [f"… {left_out} more …"]
        parts.append(f"{name}[{' '.join(shown)}]")
    return " ".join(parts)


def _offset(offset: int | None) -> str:
    return "?" if offset is None else str(offset)
