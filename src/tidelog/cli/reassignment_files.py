"""Files of `tidelog reassign`: targets, the replicas that a plan expects, and rollbacks.

The files have the format of Kafka's kafka-reassign-partitions. The key `expected_replicas` is
tidelog's own (R18), and Kafka's tool ignores the key.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import typer

from tidelog.cli.directory_moves import ReplicaPlace, Wanted
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition

_EXPECTED = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2,3]}]}'

#: The word in `log_dirs` of a reassignment file that lets the broker choose a log directory.
ANY = "any"
Targets = dict[TopicPartition, tuple[int, ...]]


class ReassignmentFileError(TidelogError):
    """The error for a reassignment file without valid targets; the message names the place in the
    file and the reason.
    """


class Document(NamedTuple):
    """The content of a reassignment file or of the option `--json`."""

    #: The name of the reassignment file, or `--json`, for error messages.
    where: str
    targets: Targets
    #: Replicas that partitions must still have (R18).
    expected: Targets
    #: The log directories that entries name, by replica (D11).
    directories: Wanted


def read(file: Path | None, text: str | None) -> Document:
    """Return the content of a file or of `--json`."""
    if (file is None) == (text is None):
        raise typer.BadParameter("give FILE, or --json with what it would hold")
    where = "--json" if file is None else str(file)
    try:
        if text is None:
            assert file is not None
            text = sys.stdin.read() if where == "-" else file.read_text(encoding="utf-8")
        document = json.loads(text)
    except OSError as error:
        raise ReassignmentFileError(f"{where}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ReassignmentFileError(f"{where} is not JSON: {error}") from error
    targets = targets_of(document, where)
    return Document(where, targets, _expected_of(document, where), _directories_of(document, where))


def targets_of(document: Any, where: str) -> Targets:
    """Return the targets in a document of Kafka's form; otherwise raise ReassignmentFileError."""
    entries = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ReassignmentFileError(f"{where} lists no partitions: {_EXPECTED} expected")
    if document.get("version", 1) != 1:
        raise ReassignmentFileError(f"{where} is of version {document['version']!r}: 1 expected")
    targets: Targets = {}
    for index, entry in enumerate(entries):
        tp, replicas = _entry(entry, f"{where}: partitions[{index}]")
        if tp in targets:
            raise ReassignmentFileError(f"{where} names {tp} more than once")
        targets[tp] = replicas
    return targets


def _expected_of(document: Any, where: str) -> Targets:
    """Return `expected_replicas` of a file; raise ReassignmentFileError if they are invalid."""
    expected: Targets = {}
    for index, entry in enumerate(document["partitions"]):
        replicas = entry.get("expected_replicas")
        if replicas is None:
            continue
        if not isinstance(replicas, list) or any(type(each) is not int for each in replicas):
            raise ReassignmentFileError(
                f"{where}: partitions[{index}]: expected_replicas is {replicas!r}: broker ids"
                " expected"
            )
        expected[TopicPartition(entry["topic"], entry["partition"])] = tuple(replicas)
    return expected


def _directories_of(document: Any, where: str) -> Wanted:
    """Return the `log_dirs` of a file; raise ReassignmentFileError if they are invalid."""
    wanted: Wanted = {}
    for index, entry in enumerate(document["partitions"]):
        paths, replicas = entry.get("log_dirs"), entry["replicas"]
        if paths is None:
            continue
        if (
            not isinstance(paths, list)
            or len(paths) != len(replicas)
            or not all(isinstance(path, str) and (path == ANY or path[:1] == "/") for path in paths)
        ):
            raise ReassignmentFileError(
                f"{where}: partitions[{index}]: log_dirs is {paths!r}: for each replica an absolute"
                f' path or "{ANY}" expected'
            )
        tp = TopicPartition(entry["topic"], entry["partition"])
        for broker_id, path in zip(replicas, paths, strict=True):
            if path != ANY:
                wanted[ReplicaPlace(broker_id, tp)] = path
    return wanted


def _entry(entry: Any, where: str) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(entry, dict):
        raise ReassignmentFileError(f"{where} is no object: {_EXPECTED} expected")
    topic, partition, replicas = (entry.get(key) for key in ("topic", "partition", "replicas"))
    if not isinstance(topic, str) or not topic:
        raise ReassignmentFileError(f"{where} names no topic")
    if not topic.isascii():
        raise ReassignmentFileError(f"{where}: {topic!r} is no topic name")
    if type(partition) is not int or partition < 0:
        raise ReassignmentFileError(f"{where}: partition is {partition!r}: a number expected")
    if (
        not isinstance(replicas, list)
        or not replicas
        or any(type(each) is not int or not 0 <= each < 2**31 for each in replicas)
    ):
        raise ReassignmentFileError(f"{where}: replicas is {replicas!r}: broker ids expected")
    if "throttle" in entry:
        raise ReassignmentFileError(
            f"{where}: throttle counts only in a node of the store: leave it out, and give"
            " --throttle"
        )
    return TopicPartition(topic, partition), tuple(replicas)


def check_expected(where: str, expected: Targets, before: Targets) -> None:
    """Raise ReassignmentFileError if partitions have changed since the file was made (R18)."""
    changed = [
        f"{tp} has {ids(before[tp])} and not {ids(expected[tp])}"
        for tp in sorted(expected)
        if before[tp] != expected[tp]
    ]
    if changed:
        raise ReassignmentFileError(
            f"{where} was made for other replicas, and nothing was moved: {'; '.join(changed)}."
            " Make it again from what there is"
        )


def rollback(replicas: Targets) -> str:
    """Return the document that moves partitions back to these replicas (R5)."""
    partitions = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas[tp])}
        for tp in replicas
    ]
    return json.dumps({"version": 1, "partitions": partitions})


def save(path: Path, text: str) -> None:
    """Write the rollback before anything moves; raise ReassignmentFileError if that fails.

    An existing file with other content is not replaced, because a command repeated after its moves
    would overwrite the only record of the former replicas.
    """
    try:
        if path.is_file():
            if path.read_bytes() == text.encode() + b"\n":
                return
            raise ReassignmentFileError(
                f"{path} exists, and nothing was moved: it may be the way back of earlier moves."
                " Name another file, or remove it"
            )
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ReassignmentFileError(
            f"{path} cannot be written, and nothing was moved: {error.strerror or error}"
        ) from error


def ids(replicas: tuple[int, ...]) -> str:
    """Return broker ids as text."""
    return ",".join(map(str, replicas))
