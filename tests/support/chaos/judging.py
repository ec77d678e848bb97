"""What the events of all clients and the final content of the log show.

`tidelog.history` judges sends and polls: losses, duplicates of idempotent producers, order, offsets
that held two values. What concerns groups is judged here: a group polled every record, committed no
offset beyond what it had polled, and began again no earlier than where it had committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.chaos.events import Event, value_of

from tidelog.history import HistoryChecker, Operation
from tidelog.history.operations import INFO, OK

#: Number of troubles of one kind that are reported one by one.
TOLD = 10
#: A commit may be acknowledged while the next member already asks where to begin; commits that are
#: older than this when a member hears of its partitions were certainly there to be seen.
SETTLED_NS = 10_000_000_000

#: Values of each partition by offset, read at the end.
Content = Mapping[int, Sequence[tuple[int, str]]]


@dataclass
class Told:
    """Everything that one client wrote."""

    process: str
    events: Sequence[Event]
    group: str = ""
    is_idempotent: bool = False


@dataclass
class Verdict:
    """What is wrong, and the figures of a run."""

    troubles: list[str] = field(default_factory=list)
    sent: int = 0
    acknowledged: int = 0
    unsure: int = 0
    polled: int = 0
    in_log: int = 0
    commits: int = 0
    refused_commits: int = 0
    #: Anomalies that Kafka's promises allow, by name: duplicates of a plain producer.
    allowed: dict[str, int] = field(default_factory=dict)


def judge(topic: str, clients: Sequence[Told], content: Content) -> Verdict:
    """Judge a run whose log holds `content` at its end."""
    verdict = Verdict(in_log=sum(map(len, content.values())))
    _judge_records(topic, clients, content, verdict)
    for group in dict.fromkeys(each.group for each in clients if each.group):
        members = [each for each in clients if each.group == group]
        _judge_group(group, members, content, verdict)
    return verdict


def _judge_records(topic: str, clients: Sequence[Told], content: Content, verdict: Verdict) -> None:
    checker = HistoryChecker()
    line = 0
    for client in clients:
        for operation in _operations(topic, client, verdict):
            line += 1
            checker.add(operation, line)
    last_ns = max((event[0] for client in clients for event in client.events), default=0)
    names = {f"{topic}-{number}": values for number, values in content.items()}
    checker.add(
        Operation("final reader", "assign", last_ns, last_ns, partitions=dict.fromkeys(names, 0)),
        line + 1,
    )
    checker.add(Operation("final reader", "poll", last_ns, last_ns, records=names), line + 2)
    report = checker.finish()
    verdict.allowed = {name: count for name, count in report.allowed.items() if name != "poll-skip"}
    for name, count in report.forbidden.items():
        told = [each for each in report.forbidden_anomalies if each.name == name][:TOLD]
        verdict.troubles.append(f"{name}: {count}, among them")
        verdict.troubles += [f"    {each}" for each in told]


def _operations(topic: str, client: Told, verdict: Verdict) -> list[Operation]:
    """Return the operations in the events of one client, sends in their order."""
    found: list[Operation] = []
    sends: dict[int, Operation] = {}
    if client.group and client.events:
        begin = client.events[0][0]
        found.append(
            Operation(client.process, "subscribe", begin, begin, topics=[topic], group=client.group)
        )
    for at, kind, *fields in client.events:
        if kind == "send":
            partition, number = fields
            records = {f"{topic}-{partition}": [[None, value_of(client.process, number)]]}
            sends[number] = Operation(
                client.process, "send", at, None, INFO, records, idempotent=client.is_idempotent
            )
            found.append(sends[number])
            verdict.sent += 1
        elif kind == "ack":
            number, offset = fields
            sends[number].end, sends[number].outcome = at, OK
            if offset is not None and offset >= 0:
                for listed in sends[number].records.values():
                    listed[0] = [offset, listed[0][1]]  # type: ignore[index]  # a list, made above
            verdict.acknowledged += 1
        elif kind == "unsure":
            sends[fields[0]].end = at
            verdict.unsure += 1
        elif kind == "poll":
            by_partition: dict[str, list[tuple[int, str]]] = {}
            for partition, offset, value in fields[0]:
                by_partition.setdefault(f"{topic}-{partition}", []).append((offset, value))
            found.append(Operation(client.process, "poll", at, at, records=by_partition))
            verdict.polled += len(fields[0])
    return found


class _Group:
    """The state of one group by its members' events in the order of time."""

    def __init__(self, name: str, content: Content, verdict: Verdict) -> None:
        self._name = name
        self._verdict = verdict
        self._ends = {number: listed[-1][0] + 1 for number, listed in content.items() if listed}
        #: By partition: the lowest offset that was not polled yet, and those polled above it.
        self.low = dict.fromkeys(content, 0)
        self._above: dict[int, set[int]] = {number: set() for number in content}
        #: By partition: (time, offset) of commits, in order.
        self._commits: dict[int, list[tuple[int, int]]] = {}
        #: By member and partition: when it was assigned, until its first poll.
        self._fresh: dict[tuple[str, int], int] = {}
        self._counts: dict[str, int] = {}

    def add(self, process: str, event: Event) -> None:
        at, kind, *fields = event
        if kind == "assigned":
            self._fresh.update({(process, partition): at for partition in fields[0]})
        elif kind == "revoked":
            for partition in fields[0]:
                self._fresh.pop((process, partition), None)
        elif kind == "poll":
            for partition, offset, _ in fields[0]:
                self._polled(process, partition, offset)
        elif kind == "commit":
            self._verdict.commits += 1
            for partition, offset in fields[0].items():
                self._committed(process, at, int(partition), offset)
        elif kind == "refused":
            self._verdict.refused_commits += 1

    def _polled(self, process: str, partition: int, offset: int) -> None:
        assigned_ns = self._fresh.pop((process, partition), None)
        if assigned_ns is not None:
            settled = [
                committed
                for at, committed in self._commits.get(partition, ())
                if at < assigned_ns - SETTLED_NS
            ]
            if settled and offset < settled[-1]:
                self._trouble(
                    "a commit was lost",
                    f"{process} began partition {partition} at {offset}; {settled[-1]} had been"
                    " committed before",
                )
        if offset < self.low[partition]:
            return
        above = self._above[partition]
        above.add(offset)
        while self.low[partition] in above:
            above.discard(self.low[partition])
            self.low[partition] += 1

    def _committed(self, process: str, at: int, partition: int, offset: int) -> None:
        self._commits.setdefault(partition, []).append((at, offset))
        if offset > self.low[partition]:
            self._trouble(
                "a commit beyond what was polled",
                f"{process} committed {offset} of partition {partition}; the group had polled"
                f" everything below {self.low[partition]} only",
            )

    def finish(self) -> None:
        for partition, end in self._ends.items():
            if self.low[partition] < end:
                self._trouble(
                    "unseen",
                    f"partition {partition} ends at {end}, and nobody polled offset"
                    f" {self.low[partition]}",
                )

    def _trouble(self, kind: str, what: str) -> None:
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count <= TOLD:
            self._verdict.troubles.append(f"group {self._name}: {kind}: {what}")


def _judge_group(name: str, members: Sequence[Told], content: Content, verdict: Verdict) -> None:
    group = _Group(name, content, verdict)
    merged = sorted(
        ((event[0], number, event) for number, each in enumerate(members) for event in each.events),
        key=lambda entry: entry[:2],
    )
    for _, number, event in merged:
        group.add(members[number].process, event)
    group.finish()
