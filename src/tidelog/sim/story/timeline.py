"""The timeline of a run: its facts, messages and operations, with the cluster's state at each step.

The recorder adds callbacks as the watcher does, so that a recorded run does the same as an
unrecorded one. The state of a step is recorded as the differences from the step before. A document
has a bounded size: of a long run, the earliest messages are left out first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.history.operations import Operation
from tidelog.sim.sim_connections import ConnectionEnd, FrameWatch
from tidelog.sim.story import facts
from tidelog.sim.story.facts import Fact
from tidelog.sim.story.watching import Watcher
from tidelog.wire import registry

if TYPE_CHECKING:
    from tidelog.sim.results import RunResult
    from tidelog.sim.run import SeedRun

#: Kinds of timeline steps that are no facts of a story: messages and responses.
MESSAGE: Final = "message"
OPERATION: Final = "operation"
VIOLATION: Final = "violation"
#: Largest document of one run, as JSON.
MAX_DOCUMENT_BYTES: Final = 2_400_000
#: Groups of kinds of steps, in the order in which they are left out of a document that is too
#: large.
_ROUTINE: Final = (
    (MESSAGE,),
    (facts.APPENDED, facts.COPIED, facts.COMMITTED, facts.OFFSETS),
    (facts.ACKNOWLEDGED, OPERATION),
)
_KEY, _CORRELATION = slice(0, 2), slice(4, 8)
#: Pattern of the brokers that the text of a fact names.
_BROKERS: Final = re.compile(r"\b(?:broker|leader|member|replica) (\d+)\b")
_TIME: Final = re.compile(r"^[0-9.]+ s: ")
#: A key of the state: ("broker", "", id), ("partition", name, -1) or ("replica", name, broker).
StateKey = tuple[str, str, int]
_NS_PER_US: Final = 1_000


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """One step: a fact, a message between two hosts, or the response of a client's operation."""

    time_ns: int
    kind: str
    about: str
    text: str
    brokers: tuple[int, ...]
    #: Sender and receiver of a message.
    hosts: tuple[str, str] | None
    #: (key, new state) of each state that differs from the step before. The new state is None if
    #: the broker, partition or replica no longer exists.
    changes: tuple[tuple[StateKey, Any], ...]


class TimelineRecorder:
    """The recorder of one run, which must not have begun."""

    def __init__(self, run: SeedRun) -> None:
        self.steps: list[TimelineStep] = []
        self._run = run
        self._state: dict[StateKey, Any] = {}
        self._paused: dict[int, None] = {}
        self._played = 0
        run.simulator.on_note.append(self._noted)
        self._watcher = Watcher(run)
        self._watcher.on_fact.append(self._fact)
        network = run.simulator.network
        network.frame_watch = _MessageWatch(network.frame_watch, self._message)

    def _noted(self, node_id: int, kind: str, _: str) -> None:
        if kind == "pause":
            self._paused[node_id] = None
        elif kind in ("resume", "death"):
            self._paused.pop(node_id, None)

    def _fact(self, fact: Fact) -> None:
        played = self._run.faults.played
        for each in played[self._played :]:
            text = f"fault {each.drawn_before + 1} is drawn: {each.kind}"
            self._add(facts.FAULT, "", text, _brokers_in(text))
        self._played = len(played)
        self._add(fact.kind, fact.about, fact.text, _brokers_in(fact.text))

    def _message(self, source: str, target: str, text: str) -> None:
        named = (*_brokers_in(_spaced(source)), *_brokers_in(_spaced(target)))
        self._add(MESSAGE, "", text, tuple(dict.fromkeys(named)), (source, target))

    def _add(
        self,
        kind: str,
        about: str,
        text: str,
        brokers: tuple[int, ...],
        hosts: tuple[str, str] | None = None,
    ) -> None:
        state = dict(self._present())
        changes = [(key, value) for key, value in state.items() if self._state.get(key) != value]
        changes += [(key, None) for key in self._state if key not in state]
        self._state = state
        now_ns = self._run.simulator.now_ns
        self.steps.append(TimelineStep(now_ns, kind, about, text, brokers, hosts, tuple(changes)))

    def _present(self) -> Iterator[tuple[StateKey, Any]]:
        """Yield the state of the cluster as it is now."""
        cluster = self._run.cluster
        marks: dict[tuple[int, str], int] = {}
        for node_id, broker in cluster.brokers.items():
            status = "down" if broker.life is None else "up"
            yield ("broker", "", node_id), "paused" if node_id in self._paused else status
            if broker.broker is not None and broker.is_up:
                for partition in broker.broker.replicas.all():
                    name = str(partition.topic_partition)
                    marks[node_id, name] = partition.role.core.high_watermark
        for tp, key, state in cluster.published.states():
            name = str(tp)
            if state is not None:
                value = [state.leader, state.leader_epoch, list(state.isr), state.partition_epoch]
                yield ("partition", name, -1), value
            for node_id, broker in cluster.brokers.items():
                log = broker.logs.logs.get(key)
                if log is not None:
                    yield ("replica", name, node_id), [log.end, marks.get((node_id, name), -1)]

    def document(self, result: RunResult, command: str) -> dict[str, Any]:
        """Return the run as a JSON document, after its end; `command` repeats the run."""
        steps = list(self.steps)
        if result.violation:
            # The text of a violation begins with a time, which the step has in a field of its own.
            text = _TIME.sub("", result.violation.partition("\n")[0])
            brokers = _brokers_in(text)
            steps.append(TimelineStep(result.simulated_ns, VIOLATION, "", text, brokers, None, ()))
        steps = _merged(steps, map(_operation_step, _ended(self._run.operations())))
        kept, encoded = _bounded(steps)
        return {
            "seed": result.seed,
            "profile": result.profile,
            "mutant": result.mutant,
            "only": result.only,
            "command": command,
            "violation": result.violation,
            "events": result.events,
            "simulated_us": result.simulated_ns // _NS_PER_US,
            "counters": result.counters,
            "brokers": list(self._run.cluster.brokers),
            "left_out": len(steps) - len(kept),
            **encoded,
        }


class _MessageWatch:
    """A watch of requests and responses beside the watch of the run's checker."""

    def __init__(self, watch: FrameWatch | None, add: Any) -> None:
        self._watch = watch
        self._add = add
        self._asked: dict[tuple[ConnectionEnd, bytes], str] = {}

    def received(self, endpoint: ConnectionEnd, frames: Sequence[memoryview]) -> None:
        """Record requests that arrived."""
        for frame in frames:
            api = registry.API.get(int.from_bytes(frame[_KEY], "big"))
            name = "a request of an unknown API" if api is None else api.name
            self._asked[endpoint, bytes(frame[_CORRELATION])] = name
            source, target = _host(endpoint.peer_name), _host(endpoint.name)
            self._add(source, target, f"{source} -> {target}: {name}, {len(frame)} bytes")
        if self._watch is not None:
            self._watch.received(endpoint, frames)

    def sent(self, endpoint: ConnectionEnd, frame: bytes) -> None:
        """Record a response that the broker sends; `frame` begins with its size."""
        name = self._asked.pop((endpoint, bytes(frame[_CORRELATION])), "a request")
        source, target = _host(endpoint.name), _host(endpoint.peer_name)
        text = f"{source} -> {target}: response to {name}, {len(frame) - 4} bytes"
        self._add(source, target, text)
        if self._watch is not None:
            self._watch.sent(endpoint, frame)


def _host(name: str) -> str:
    return name.partition(":")[0]


def _spaced(host: str) -> str:
    """Return `broker 1` for `broker1`, the form of facts."""
    return re.sub(r"(?<=[a-z])(?=\d)", " ", host)


def _brokers_in(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(int(each) for each in _BROKERS.findall(text)))


def _ended(operations: Iterable[Operation]) -> list[Operation]:
    return sorted(
        (each for each in operations if each.end is not None), key=lambda each: each.end or 0
    )


def _operation_step(operation: Operation) -> TimelineStep:
    places = [*operation.records, *operation.partitions]
    records = sum(map(len, operation.records.values()))
    took_ms = ((operation.end or 0) - operation.begin) / 1_000_000
    words = [f"{operation.process}: {operation.kind} ends with {operation.outcome}"]
    if records:
        words.append(f"{records} records")
    if operation.group:
        words.append(f"group {operation.group}")
    words.append(f"{took_ms:.1f} ms")
    if operation.note:
        words.append(operation.note)
    about = places[0] if len(places) == 1 else ""
    if len(places) > 1:
        words.append(", ".join(places))
    return TimelineStep(operation.end or 0, OPERATION, about, ", ".join(words), (), None, ())


def _merged(steps: list[TimelineStep], further: Iterable[TimelineStep]) -> list[TimelineStep]:
    """Return `steps` and `further` by time; at equal times, `steps` come before `further`."""
    return sorted([*steps, *further], key=lambda each: each.time_ns)


def _bounded(steps: list[TimelineStep]) -> tuple[list[TimelineStep], dict[str, Any]]:
    """Return the steps that fit into a document, and their encoding."""
    encoded = _encoded(steps)
    for kinds in _ROUTINE:
        # The size of a step is only estimated, so several attempts may be needed.
        while (excess := _size_bytes(encoded) - MAX_DOCUMENT_BYTES) > 0:
            kept = _without(steps, kinds, excess)
            if len(kept) == len(steps):
                break
            steps, encoded = kept, _encoded(kept)
    return steps, encoded


def _without(
    steps: list[TimelineStep], kinds: Sequence[str], excess_bytes: int
) -> list[TimelineStep]:
    """Return `steps` without the earliest steps of `kinds`, enough to save `excess_bytes`.

    The changes of an omitted step are added to the next step that stays.
    """
    kept: list[TimelineStep] = []
    carried: dict[StateKey, Any] = {}
    for step in steps:
        # The last step stays, because no later step could have its changes.
        if step.kind in kinds and excess_bytes > 0 and step is not steps[-1]:
            excess_bytes -= len(step.text) + 40
            carried |= dict(step.changes)
            continue
        if carried:
            changes = tuple((carried | dict(step.changes)).items())
            step = TimelineStep(
                step.time_ns, step.kind, step.about, step.text, step.brokers, step.hosts, changes
            )
            carried = {}
        kept.append(step)
    return kept


def _size_bytes(encoded: dict[str, Any]) -> int:
    return len(json.dumps(encoded, separators=(",", ":")))


def _encoded(steps: Iterable[TimelineStep]) -> dict[str, Any]:
    """Return steps with numbers in place of repeated names."""
    kinds: dict[str, int] = {}
    subjects: dict[str, int] = {}
    hosts: dict[str, int] = {}
    keys: dict[StateKey, int] = {}
    rows = []
    for step in steps:
        changes: list[Any] = []
        for key, value in step.changes:
            changes += [keys.setdefault(key, len(keys)), value]
        row: list[Any] = [
            step.time_ns // _NS_PER_US,
            kinds.setdefault(step.kind, len(kinds)),
            subjects.setdefault(step.about, len(subjects)) if step.about else -1,
            list(step.brokers),
            step.text,
            changes,
        ]
        if step.hosts is not None:
            row.append([hosts.setdefault(each, len(hosts)) for each in step.hosts])
        rows.append(row)
    return {
        "kinds": list(kinds),
        "subjects": list(subjects),
        "hosts": list(hosts),
        "keys": list(keys),
        "steps": rows,
    }
