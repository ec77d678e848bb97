"""The watcher of a run, which records the facts of its story.

The watcher follows the brokers' traces (`core.ports.Tracer`), the store's transactions, the log
files, the claims of leaders and the responses to clients. It only adds callbacks, as checkers do,
so a watched run is the same as an unwatched run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.sim.checkers.group_checker import Commit
from tidelog.sim.client_history import Outcome, Produce
from tidelog.sim.listeners import CallbackList
from tidelog.sim.observed.claims import ReplicaClaim
from tidelog.sim.observed.published_state import PublishedPartition
from tidelog.sim.observed.replica_logs import LogKey, ReplicaLog
from tidelog.sim.story import facts
from tidelog.sim.story.facts import Fact

if TYPE_CHECKING:
    from tidelog.sim.node import Incarnation
    from tidelog.sim.run import SeedRun
    from tidelog.sim.sim_broker import SimBroker

LOSSES: Final = {
    "NONE": "its process ends, the machine continues: no written data is lost",
    "UNSYNCED": "the power fails: only a part of the unsynced data is left",
    "PREFIX": "the power fails: the first unsynced writes are left",
    "TORN": "the power fails: the first unsynced writes are left, one of them torn",
    "REORDERED": "the power fails: parts of the unsynced data are left, later without earlier ones",
    "ALL_UNSYNCED": "the power fails: all unsynced data is lost",
}


_ROLES: Final = ("became_leader", "became_follower")
_IN_ROLE: Final = (
    " in leader epoch {leader_epoch}; its log ends at {log_end_offset}, high watermark"
    " {high_watermark}"
)
#: By the name of a traced event: kind, subject and text of the story's fact about it.
_TRACED: Final[Mapping[str, tuple[str, str, str]]] = {
    "controller_elected": (
        facts.CONTROLLER, "", "broker {node} becomes controller, epoch {epoch}",
    ),
    "controller_resigned": (
        facts.CONTROLLER, "", "broker {node} is no longer controller (epoch {epoch}): {reason}",
    ),
    "created": (facts.CONTROLLER, "{topic}", "an administrator creates it"),
    "deleted": (facts.CONTROLLER, "{topic}", "an administrator deletes it"),
    "became_leader": (facts.ROLE, "{partition}", "broker {node} leads" + _IN_ROLE),
    "became_follower": (
        facts.ROLE, "{partition}", "broker {node} follows broker {leader}" + _IN_ROLE,
    ),
    "unclean_leader": (
        facts.ROLE, "{partition}",
        "broker {node} was elected from outside the ISR: committed records from {log_end_offset} on"
        " are lost",
    ),
    "isr_change_refused": (
        facts.ISR, "{partition}", "the controller refuses leader {node} the ISR {isr}: {error}",
    ),
    "truncated": (
        facts.CUT, "{partition}",
        "broker {node} truncates its log from {log_end_offset} to {to}, as the leader of epoch"
        " {leader_epoch} reports the divergence",
    ),
    "log_recovered": (
        facts.CUT, "{partition}",
        "broker {node} truncates {cut_bytes} bytes of an incomplete batch; its log ends at"
        " {end_offset}",
    ),
    "partition_command_refused": (
        facts.ROLE, "{partition}", "broker {node} refuses a command of the controller: {error}",
    ),
    "replica_deleted": (facts.ROLE, "{partition}", "broker {node} deletes its replica"),
    "log_directory_failed": (
        facts.PROCESS, "",
        "broker {node} gives up its log directory {directory}: {operation} failed with {error}",
    ),
    "groups_loaded": (
        facts.GROUP, f"{CONSUMER_OFFSETS}-{{partition}}",
        "broker {node} now coordinates its groups (leader epoch {leader_epoch})",
    ),
    "groups_unloaded": (
        facts.GROUP, f"{CONSUMER_OFFSETS}-{{partition}}",
        "broker {node} no longer coordinates its groups (leader epoch {leader_epoch})",
    ),
}  # fmt: skip


#: By the kind of a trace line: kind and text of the story's fact about it.
_NOTED: Final[Mapping[str, tuple[str, str]]] = {
    "fault": (facts.FAULT, "{detail}"),
    "faults": (facts.FAULT, "faults end: every link is whole, every broker is started"),
    "start failed": (facts.PROCESS, "{who} cannot start: {detail}"),
    "halt": (facts.PROCESS, "{who} halts: {detail}"),
    "pause": (facts.PROCESS, "{who} pauses"),
    "resume": (facts.PROCESS, "{who} resumes"),
}
_OF_BROKERS: Final = ("pause", "resume")


class Watcher:
    """Watcher of one run; it must be added before the run begins."""

    def __init__(self, run: SeedRun) -> None:
        self.run = run
        self.facts: list[Fact] = []
        #: Called with each fact when it happens.
        self.on_fact: CallbackList[[Fact]] = CallbackList()
        self._cluster = run.cluster
        self._simulator = run.simulator
        self._controllers: dict[int, int] = {}
        self._proposed: dict[tuple[int, LogKey], tuple[int, ...]] = {}
        self._led: dict[tuple[int, str], bool] = {}
        #: Brokers whose process is not running.
        self.down: dict[int, None] = {}
        self._follow()

    def _follow(self) -> None:
        cluster, simulator = self._cluster, self._simulator
        simulator.on_note.append(self._noted)
        simulator.on_traced.append(self._traced)
        cluster.published.on_state.append(self._state_changed)
        cluster.published.on_broker.append(self._registered)
        cluster.replication.on_committed.append(self._committed)
        cluster.replication.on_proposed.append(self._isr_proposed)
        cluster.history.on_acknowledged.append(self._acknowledged)
        cluster.groups.on_synced.append(self._synced)
        cluster.groups.on_commit_ended.append(self._offsets_answered)
        for broker in cluster.brokers.values():
            self._follow_logs(broker)

    def _follow_logs(self, broker: SimBroker) -> None:
        """Follow changes in a broker's files; called before the replication checker sees them."""
        grown, cut = broker.logs.on_grown, broker.logs.on_cut

        def log_grown(log: ReplicaLog, first: int) -> None:
            self._log_grown(broker, log, first)
            grown(log, first)

        def log_cut(log: ReplicaLog, end_before: int) -> None:
            self._log_cut(broker, log, end_before)
            cut(log, end_before)

        broker.logs.on_grown, broker.logs.on_cut = log_grown, log_cut

    def _add(
        self,
        kind: str,
        about: str,
        text: str,
        who: str = "",
        offsets: tuple[int, int] | None = None,
    ) -> None:
        fact = Fact(self._simulator.now_ns, kind, about, text, who, offsets)
        self.facts.append(fact)
        self.on_fact(fact)

    def name(self, key: LogKey) -> str:
        """Return the name of a partition."""
        topic = self._cluster.published.all_topics.get(key.topic_id)
        return f"{topic.name}-{key.partition}" if topic else str(key)

    # Processes, faults

    def _noted(self, node_id: int, kind: str, detail: str) -> None:
        is_broker, who = node_id in self._cluster.brokers, f"broker {node_id}"
        if kind == "death" and is_broker:
            self.down[node_id] = None
            loss, _, reason = detail.partition(" ")
            self._add(facts.PROCESS, "", f"{who}: {reason}; {LOSSES[loss]}")
        elif kind == "start" and is_broker:
            self.down.pop(node_id, None)
            again = "" if detail == "1" else f" again (incarnation {detail})"
            self._add(facts.PROCESS, "", f"{who} starts{again}")
        elif kind in _NOTED and (is_broker or kind not in _OF_BROKERS):
            fact, text = _NOTED[kind]
            self._add(fact, "", text.format(who=who, detail=detail))

    def _registered(self, broker_id: int, broker_epoch: int) -> None:
        text = f"broker {broker_id} registers under broker epoch {broker_epoch}"
        self._add(facts.PROCESS, "", text)

    def _traced(self, incarnation: Incarnation, name: str, fields: dict[str, Any]) -> None:
        template = _TRACED.get(name)
        if template is None:
            return
        node_id = incarnation.node_id
        if name == "controller_elected":
            self._controllers[fields["epoch"]] = node_id
        elif name in _ROLES:
            self._led[node_id, fields["partition"]] = name == "became_leader"
        kind, about, text = template
        self._add(kind, about.format_map(fields), text.format_map({**fields, "node": node_id}))

    # The controller

    def _controller(self) -> str:
        epoch = self._cluster.published.controller_epoch
        node_id = self._controllers.get(epoch)
        return f"the controller (broker {node_id if node_id else '?'}, epoch {epoch})"

    def _state_changed(self, before: PublishedPartition | None, state: PublishedPartition) -> None:
        name = self.name(state.key)
        who = self._controller()
        if before is None:
            text = f"{who} creates it: leader is broker {state.leader}, ISR {state.isr}"
            self._add(facts.STATE, name, text)
            return
        change = f"ISR {before.isr} -> {state.isr}, partition epoch {state.partition_epoch}"
        if state.leader_epoch == before.leader_epoch:
            text = f"{who} publishes what its leader proposed: {change}"
            if state.isr == before.isr:
                text = f"{who} publishes the same ISR {state.isr} as partition epoch"
                text += f" {state.partition_epoch}: a final rejection, or other broker epochs"
            self._add(facts.ISR, name, text)
            return
        why = self._why(before, state)
        what = f"lets broker {state.leader} continue to lead"
        if state.leader != before.leader:
            what = f"elects broker {state.leader}"
        text = f"{who} {what}, {why}; leader epoch {state.leader_epoch}, {change}"
        if state.leader < 0:
            text = f"{who} leaves it without a leader: {why}; {change}"
        self._add(facts.STATE, name, text)

    def _why(self, before: PublishedPartition, state: PublishedPartition) -> str:
        """Return the controller's reason for a new state, as far as published state shows it."""
        registered = self._cluster.published.brokers
        reasons = []
        for member in before.isr:
            recorded = before.epoch_of(member)
            what = "leader" if member == before.leader else "member"
            if member not in registered:
                reasons.append(f"{what} {member} is gone")
            elif recorded is not None and recorded != registered[member]:
                reasons.append(
                    f"{what} {member} was recorded under broker epoch {recorded} and has"
                    f" {registered[member]}"
                )
        if before.leader < 0 and state.leader >= 0:
            reasons.append(f"member {state.leader} of the last ISR is there")
        if not reasons:
            topic = self._cluster.published.all_topics[state.key.topic_id]
            # The assignment may be missing, because an administrator edited the topic's node.
            preferred = topic.assignment.get(state.key.partition, ())[:1]
            if state.leader in preferred and state.leader != before.leader:
                reasons.append("it is the preferred replica")
            else:
                reasons.append("published state shows no further reason")
        return "as " + ", ".join(reasons)

    # Replicas

    def _isr_proposed(self, node_id: int, claim: ReplicaClaim) -> None:
        members = tuple(dict.fromkeys(member for member, _ in claim.in_flight))
        key = (node_id, claim.key)
        if members and self._proposed.get(key) != members:
            text = f"leader {node_id} proposes the ISR {members}"
            self._add(facts.ISR, str(claim.name), text)
        self._proposed[key] = members

    # Records

    def _log_grown(self, broker: SimBroker, log: ReplicaLog, first: int) -> None:
        name, node_id = self.name(log.key), broker.node_id
        numbers = log.numbers[first - log.start :]
        leads = self._led.get((node_id, name), False)
        who = f"leader {node_id}" if leads else f"broker {node_id}"
        kind = facts.APPENDED if leads else facts.COPIED
        verb = "appends" if leads else "copies"
        text = f"{who} {verb} {_offsets(first, log.end - 1)} ({_records(numbers)}, leader epoch"
        self._add(kind, name, f"{text} {log.epochs[-1]})", who, (first, log.end - 1))

    def _log_cut(self, broker: SimBroker, log: ReplicaLog, end_before: int) -> None:
        who = f"broker {broker.node_id}"
        text = f"the log of {who} ended at {end_before} and now ends at {log.end}"
        if broker.life is None:
            text = f"{who} lost records in a power failure: its log ended at {end_before}, its"
            text += f" files show {log.end} now"
        self._add(facts.CUT, self.name(log.key), text)

    def _committed(self, node_id: int, claim: ReplicaClaim, first: int) -> None:
        who = f"leader {node_id}"
        last = claim.high_watermark - 1
        text = f"{who} of epoch {claim.leader_epoch} commits {_offsets(first, last)}: its high"
        text += f" watermark is {claim.high_watermark}"
        self._add(facts.COMMITTED, str(claim.name), text, who, (first, last))

    def _acknowledged(self, operation: Produce) -> None:
        name = f"{operation.topic}-{operation.partition}"
        who = f"client {operation.client}"
        first = operation.base_offset
        last = first + len(operation.numbers) - 1
        where = f" at {_offsets(first, last)}" if first >= 0 else ""
        text = f"{who} gets the acknowledgement of {_records(operation.numbers)}{where} (acks"
        text += f" {operation.acks})"
        self._add(facts.ACKNOWLEDGED, name, text, who, (first, last) if first >= 0 else None)

    # Groups

    def _synced(self, group: str, generation: int, member: str, partitions: list[int]) -> None:
        text = f"{member} is assigned partitions {partitions} in generation {generation}"
        self._add(facts.GROUP, group, text)

    def _offsets_answered(self, commit: Commit) -> None:
        if commit.outcome is Outcome.DONE:
            who = f"partition {commit.partition}"
            text = f"generation {commit.generation} gets the acknowledgement of offset"
            text += f" {commit.offset} for {who}"
            self._add(facts.OFFSETS, commit.group, text, who, (commit.offset, commit.offset))
        elif commit.outcome is Outcome.REFUSED:
            text = f"generation {commit.generation} is refused offset {commit.offset} for"
            self._add(facts.GROUP, commit.group, f"{text} partition {commit.partition}")


def _offsets(first: int, last: int) -> str:
    return f"offset {first}" if first == last else f"offsets {first}-{last}"


def _records(numbers: tuple[int, ...] | list[int]) -> str:
    """Return records as text: the numbers of clients' records, and how many records coordinators
    wrote.
    """
    if numbers[0] > _CLIENTS_NUMBERS:
        return f"{len(numbers)} record{'s' if len(numbers) > 1 else ''} of groups"
    if len(numbers) == 1:
        return f"record {numbers[0]}"
    return f"records {numbers[0]}-{numbers[-1]}"


#: Record numbers above this limit are checksums of coordinators' records (`sim/batches`).
_CLIENTS_NUMBERS: Final = 1 << 60
