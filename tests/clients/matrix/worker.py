"""Clients in other languages: a program each, asked by lines of JSON, one answer a line.

A request is `{"op": ..., ...}`, its answer `{"ok": ...}` or `{"error": "..."}`. Keys and values are
base64. The programs (kafkajs/, franz/, java/) hold their members and writers by number; their
operations are named and fed as the methods of `Driver`.
"""

from __future__ import annotations

import base64
import json
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.clients.matrix.driver import (
    PATIENCE_S,
    GroupInfo,
    GroupMember,
    Member,
    MemberState,
    PartitionInfo,
    Received,
    Refused,
    Writer,
)
from tests.support.clients.samples import Record


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _to_json(record: Record) -> dict[str, Any]:
    return {
        "key": _encoded(record.key),
        "value": _encoded(record.value),
        "headers": [[name, _encoded(value)] for name, value in record.headers],
        "timestamp": record.timestamp_ms,
    }


def _from_json(told: Mapping[str, Any]) -> Record:
    headers = tuple((name, _decoded(value)) for name, value in told["headers"])
    return Record(_decoded(told["key"]), _decoded(told["value"]), headers, told["timestamp"])


class Program:
    """The process, and the one conversation with it."""

    def __init__(
        self,
        words: Sequence[str],
        directory: Path,
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                words,
                cwd=directory,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def ask(self, op: str, **words: Any) -> Any:
        """The answer; raises Refused for an error that the client raised."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": op, **words}) + "\n")
        self._process.stdin.flush()
        line = self._answers.get(timeout=2 * PATIENCE_S)
        assert line, f"the client's program ended:\n{self._log.read_text()[-4000:]}"
        told = json.loads(line)
        if "error" in told:
            raise Refused(told["error"])
        return told["ok"]

    def close(self) -> None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(PATIENCE_S)
        stdout.close()


class WorkerMember:
    def __init__(self, program: Program, number: int) -> None:
        self._program = program
        self._number = number

    def state(self) -> MemberState:
        told = self._program.ask("member_state", member=self._number)
        return MemberState(
            frozenset(told["assigned"]),
            tuple(Received(*each) for each in told["received"]),
            tuple(frozenset(each) for each in told["revoked"]),
            told["rebalances"],
        )

    def commit(self) -> None:
        self._program.ask("member_commit", member=self._number)

    def close(self) -> None:
        self._program.ask("member_close", member=self._number)


class WorkerWriter:
    def __init__(self, program: Program, number: int) -> None:
        self._program = program
        self._number = number

    def stop(self) -> int:
        return int(self._program.ask("writer_stop", writer=self._number))


class WorkerDriver:
    """The driver of a client that runs in a program of its own."""

    def __init__(self, program: Program, bootstrap: str) -> None:
        self._program = program
        self._ask = program.ask
        self.version = str(self._ask("open", bootstrap=bootstrap))

    def write(
        self, topic: str, partition: int, codec: str, records: Sequence[Record]
    ) -> list[Record]:
        sent = [_to_json(record) for record in records]
        self._ask("write", topic=topic, partition=partition, codec=codec, records=sent)
        return list(records)

    def read(self, topic: str, partition: int) -> list[Record]:
        return self._read(topic, partition, offset=0)

    def read_values(self, topic: str, partition: int, offset: int) -> list[bytes]:
        return [each.value or b"" for each in self._read(topic, partition, offset=offset)]

    def read_values_since(self, topic: str, partition: int, timestamp_ms: int) -> list[bytes]:
        found = self._read(topic, partition, timestamp=timestamp_ms)
        return [each.value or b"" for each in found]

    def _read(self, topic: str, partition: int, **start: int) -> list[Record]:
        told = self._ask("read", topic=topic, partition=partition, **start)
        return [_from_json(each) for each in told]

    def offset(self, topic: str, partition: int, at: str | int) -> int:
        return int(self._ask("offset", topic=topic, partition=partition, at=at))

    def start_writer(self, topic: str, partition: int) -> Writer:
        number = self._ask("writer_start", topic=topic, partition=partition)
        return WorkerWriter(self._program, number)

    def init_transactions(self, transactional_id: str) -> None:
        self._ask("init_transactions", id=transactional_id)

    def join(
        self, group: str, topic: str, *, cooperative: bool = False, instance_id: str | None = None
    ) -> Member:
        number = self._ask(
            "join", group=group, topic=topic, cooperative=cooperative, instance=instance_id
        )
        return WorkerMember(self._program, number)

    def create_topic(
        self, topic: str, partitions: int, replicas: int, configs: Mapping[str, str]
    ) -> None:
        words = {"partitions": partitions, "replicas": replicas, "configs": dict(configs)}
        self._ask("create_topic", topic=topic, **words)

    def delete_topic(self, topic: str) -> None:
        self._ask("delete_topic", topic=topic)

    def list_topics(self) -> list[str]:
        return list(self._ask("list_topics"))

    def describe_topic(self, topic: str) -> dict[int, PartitionInfo]:
        return {
            each["partition"]: PartitionInfo(
                each["leader"], tuple(each["replicas"]), tuple(each["isr"])
            )
            for each in self._ask("describe_topic", topic=topic)
        }

    def create_partitions(self, topic: str, total: int) -> None:
        self._ask("create_partitions", topic=topic, total=total)

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        return dict(self._ask("describe_configs", topic=topic))

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self._ask("alter_configs", topic=topic, configs=dict(configs))

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        return int(self._ask("delete_records", topic=topic, partition=partition, before=before))

    def describe_cluster(self) -> tuple[frozenset[int], int]:
        told = self._ask("describe_cluster")
        return frozenset(told["brokers"]), int(told["controller"])

    def elect_preferred_leader(self, topic: str, partition: int) -> None:
        self._ask("elect_preferred_leader", topic=topic, partition=partition)

    def log_dir_sizes(self, broker: int, topic: str) -> dict[int, int]:
        told = self._ask("log_dir_sizes", broker=broker, topic=topic)
        return {int(partition): size for partition, size in told.items()}

    def list_groups(self) -> list[str]:
        return list(self._ask("list_groups"))

    def describe_group(self, group: str) -> GroupInfo:
        told = self._ask("describe_group", group=group)
        members = tuple(
            GroupMember(each["client_id"], frozenset(each["partitions"]))
            for each in told["members"]
        )
        return GroupInfo(told["state"], told["protocol"], members)

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        told = self._ask("group_offsets", group=group, topic=topic)
        return {int(partition): offset for partition, offset in told.items()}

    def set_group_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        words = {"partition": partition, "offset": offset}
        self._ask("set_group_offset", group=group, topic=topic, **words)

    def delete_group(self, group: str) -> None:
        self._ask("delete_group", group=group)

    def close(self) -> None:
        self._program.close()
