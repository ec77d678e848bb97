"""Judgement of a cluster by its status: healthy, degraded or unavailable, with a next step.

The functions are pure and contact no cluster. Every judgement has reasons. Levels are exit codes,
so that scripts need no parser.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from tidelog.client.moving import Moves
from tidelog.client.stray_requests import StrayReplica
from tidelog.client.throttles import Throttle
from tidelog.client.upkeep import LogDirDescription
from tidelog.core.config_text import BOOTSTRAP_VARIABLE
from tidelog.core.dataclass import dataclass
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.core.wording import counted
from tidelog.local.remedy_commands import command_on
from tidelog.local.status import BrokerStatus, ClusterStatus, PartitionStatus

HEALTHY = 0
DEGRADED = 1
UNAVAILABLE = 2
UNREACHABLE = 3
#: The name of each health level in JSON documents and in the first line of the command's output.
LEVELS = {
    HEALTHY: "healthy",
    DEGRADED: "degraded",
    UNAVAILABLE: "unavailable",
    UNREACHABLE: "unreachable",
}
#: Maximum number of partitions named in a sentence; JSON documents name all partitions.
_NAMED = 3
_ACCEPT = (
    "start the brokers of all replicas; then look at topics, configurations and `tidelog strays"
    " list`, and end this with `tidelog store accept {store}` (docs/guide/older-store.md)"
)
#: The level of findings that do not affect the cluster's health.
NOTICE = "notice"
_LOOK = "look at the metadata store and at the brokers' logs"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of the cluster, or a state that an operator should know of.

    `level` is notice, degraded, unavailable or unreachable; a notice does not affect the health.
    `next` is what the operator should do next: a command, or a sentence.
    """

    level: str
    kind: str
    message: str
    brokers: list[int]
    partitions: list[str]
    next: str


@dataclass(frozen=True, slots=True)
class Health:
    """A cluster's health; `level` and `exit_code` follow from the worst finding."""

    level: str
    exit_code: int
    bootstrap: str
    controller: int
    brokers: int
    brokers_down: int
    partitions: int
    under_replicated: int
    leaderless: int
    below_min_isr: int
    findings: list[Finding]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Data about a cluster beyond its status: log directories, moves, stray replicas, throttles."""

    log_dirs: Sequence[LogDirDescription] = ()
    #: Replicas in failed log directories, by (broker, path of the directory).
    lost: Mapping[tuple[int, str], Sequence[TopicPartition]] = field(default_factory=dict)
    moves: Moves | None = None
    strays: Sequence[StrayReplica] = ()
    #: Configured replication throttles that no move needs.
    throttles: Sequence[Throttle] = ()


@dataclass(frozen=True, slots=True)
class ClusterPlace:
    """The name of the cluster in commands, and its directory if it is local."""

    option: str
    directory: str | None


def unreachable(bootstrap: str, reason: str, place: ClusterPlace) -> Health:
    """Return the health of a cluster in which no broker responds."""
    if place.directory:
        step = f"tidelog up{place.option}"
    else:
        step = f"start the brokers, or correct {'-b' if place.option else BOOTSTRAP_VARIABLE}"
    finding = Finding("unreachable", "not_reached", reason, [], [], step)
    return _health(ClusterStatus(bootstrap, None, -1, False, (), ()), [finding], 0)


def assess(
    now: ClusterStatus,
    minimum: Mapping[str, int],
    place: ClusterPlace,
    controller_trouble: str | None = None,
    around: Surroundings | None = None,
) -> Health:
    """Return the health of a cluster in which a broker responds.

    `minimum` is min.insync.replicas by topic, 1 for an absent topic. `controller_trouble` is the
    reason for a missing response of the controller, else None. A partition with fewer replicas than
    min.insync.replicas needs all of its replicas (V60).
    """
    around = around or Surroundings()
    leaderless = [each for each in now.partitions if each.leader == NO_LEADER]
    led = [each for each in now.partitions if each.leader != NO_LEADER]
    below = [
        each for each in led if len(each.isr) < min(minimum.get(each.topic, 1), len(each.replicas))
    ]
    lagging = [each for each in led if len(each.isr) < len(each.replicas) and each not in below]
    steps = _Steps(now, place)
    findings = [
        *_of_partitions(
            leaderless,
            UNAVAILABLE,
            "no_leader",
            lambda count: f"{count} without a leader, neither readable nor writable",
            steps,
        ),
        *_of_partitions(
            below,
            UNAVAILABLE,
            "below_min_isr",
            lambda count: f"{count} with an ISR below min.insync.replicas: acks=all is refused",
            steps,
        ),
        *_of_partitions(
            lagging, DEGRADED, "under_replicated", lambda count: f"{count} under-replicated", steps
        ),
        *(_of_broker(each, steps) for each in now.brokers if _is_troubled(each)),
        *(
            of_log_dir(each, around.lost.get((each.broker_id, each.path), ()))
            for each in around.log_dirs
            if each.error or each.is_read_only or each.is_slow
        ),
    ]
    if now.controller < 0:
        findings.append(
            Finding(
                "degraded",
                "no_controller",
                "no broker is the controller: leaders and ISRs cannot change",
                [],
                [],
                _LOOK,
            )
        )
    went_back = "" if around.moves is None else around.moves.went_back
    if went_back:
        step = _ACCEPT.format(store=shlex.quote(place.directory) if place.directory else "STORE")
        findings.append(Finding("degraded", "store_went_back", went_back, [], [], step))
    if now.controller >= 0 and controller_trouble is not None:
        message = f"the controller, broker {now.controller}, cannot decide: {controller_trouble}"
        findings.append(Finding("degraded", "controller_blocked", message, [], [], _LOOK))
    findings += _notices(around, place)
    return _health(now, findings, len(below))


def _notices(around: Surroundings, place: ClusterPlace) -> Iterator[Finding]:
    """Yield findings about states that an operator caused and may have forgotten."""
    moves, option = around.moves, place.option
    if moves is not None and moves.is_frozen:
        message = "reassignments are frozen: no move begins, of a dead broker's replicas either"
        yield Finding(NOTICE, "frozen", message, [], [], f"tidelog reassign unfreeze{option}")
    if moves is not None and moves.queued:
        names = [str(each) for each in moves.queued]
        message = f"{counted(len(names), 'move', 'is', 'are')} queued: {_some(names)}"
        yield Finding(NOTICE, "queued_moves", message, [], names, f"tidelog reassign queue{option}")
    if around.throttles:
        names = [str(each) for each in around.throttles]
        message = f"throttles of replication outlive their moves: {'; '.join(names[:_NAMED])}"
        if len(names) > _NAMED:
            message += f" and {len(names) - _NAMED} more settings"
        step = f"tidelog reassign cancel --throttles{option}"
        yield Finding(NOTICE, "throttles_left", message, [], [], step)
    if around.strays:
        size_bytes = sum(each.size_bytes for each in around.strays)
        brokers = sorted({each.broker_id for each in around.strays})
        count = counted(len(around.strays), "replica")
        message = f"{count} with {size_bytes:,} bytes set aside on {_brokers_text(brokers)}"
        held = sum(each.delete_at_ms is None for each in around.strays)
        if held:
            message += f"; {held} of them stay until an operator decides"
        yield Finding(NOTICE, "strays", message, brokers, [], f"tidelog strays list{option}")


def _health(now: ClusterStatus, findings: list[Finding], below: int) -> Health:
    numbers = {name: number for number, name in LEVELS.items()}
    numbers[NOTICE] = HEALTHY
    worst = max((numbers[each.level] for each in findings), default=HEALTHY)
    return Health(
        level=LEVELS[worst],
        exit_code=worst,
        bootstrap=now.bootstrap,
        controller=now.controller,
        brokers=len(now.brokers),
        brokers_down=len(now.down),
        partitions=len(now.partitions),
        under_replicated=now.under_replicated,
        leaderless=now.leaderless,
        below_min_isr=below,
        findings=findings,
    )


def of_log_dir(found: LogDirDescription, lost: Sequence[TopicPartition] = ()) -> Finding:
    """Return the finding about a log directory that has failed, is full or is slow.

    `lost` names the replicas that were in a failed directory.
    """
    name = f"log directory {found.path} of broker {found.broker_id}"
    if found.error:
        names = [str(each) for each in lost]
        which = f" ({len(names)}: {_some(names)})" if names else ""
        message = f"{name} cannot be used: {found.error.name}; its replicas are offline{which}"
        step = "replace the disk, then restart the broker: it fetches its records again"
        return Finding("degraded", "log_dir_failed", message, [found.broker_id], names, step)
    if found.is_slow and not found.is_read_only:
        message = f"{name} is slow: too many of its operations take log.dir.slow.threshold.ms"
        step = (
            "look at the disk and at the kernel's log; if it is failing, move its replicas away, or"
            f" tidelog log-dirs mark-bad --broker {found.broker_id} {found.path}"
        )
        return Finding("degraded", "log_dir_slow", message, [found.broker_id], [], step)
    message = f"{name} is full and serves reads only: {found.usable_bytes:,} usable bytes"
    step = "make room on the disk, by retention or otherwise; no restart is needed"
    return Finding("degraded", "log_dir_full", message, [found.broker_id], [], step)


class _Steps:
    """The commands that findings suggest to an operator as next steps."""

    def __init__(self, now: ClusterStatus, place: ClusterPlace) -> None:
        self._place = place
        self._troubled = {each.id: each for each in now.brokers if _is_troubled(each)}

    def of_brokers(self, brokers: Iterable[int]) -> str | None:
        """Return how to restore the given brokers; None if all of them are healthy."""
        troubled = [self._troubled[each] for each in sorted(brokers) if each in self._troubled]
        if not troubled:
            return None
        option, directory = self._place.option, self._place.directory
        paused = [each for each in troubled if each.state == "paused"]
        if directory and paused:
            return f"tidelog break resume {paused[0].id}{option}"
        if directory and any(each.state == "stopped" for each in troubled):
            return f"tidelog up{option}"
        if directory:
            return f"read the end of {directory}/broker-{troubled[0].id}/log/broker.log"
        return f"start {_brokers_text([each.id for each in troubled])}; its log says why it ended"

    def of_partition(self, partition: PartitionStatus) -> str:
        """Return how to inspect a partition whose brokers are all up."""
        return command_on("tidelog topics describe", partition.topic, self._place.option)


def _of_partitions(
    partitions: Sequence[PartitionStatus],
    level: int,
    kind: str,
    words: Callable[[str], str],
    steps: _Steps,
) -> list[Finding]:
    if not partitions:
        return []
    missing = sorted(
        {number for each in partitions for number in each.replicas if number not in each.isr}
    )
    held = {number for each in partitions for number in each.replicas}
    count = counted(len(partitions), "partition")
    names = [f"{each.topic}-{each.partition}" for each in partitions]
    sentence = f"{words(count)}: {_some(names)}"
    if missing:
        sentence += f"; out of the ISR: {_brokers_text(missing)}"
    step = steps.of_brokers(missing) or steps.of_brokers(held) or steps.of_partition(partitions[0])
    unexplained = [
        each
        for each in partitions
        if each.leader != NO_LEADER
        and not steps.of_brokers(set(each.replicas) - set(each.isr) or each.replicas)
    ]
    if unexplained and steps.of_brokers(held):
        first = unexplained[0]
        step += f"; for {first.topic}-{first.partition}"
        step += f" and {len(unexplained) - 1} more" if len(unexplained) > 1 else ""
        step += f", whose brokers are up: {steps.of_partition(first)}"
    return [Finding(LEVELS[level], kind, sentence, missing, names, step)]


def _of_broker(broker: BrokerStatus, steps: _Steps) -> Finding:
    held = f"it holds {broker.replicas} replicas" if broker.replicas else "it holds no replica"
    if broker.registered is False:
        state = "" if broker.state == "down" else f" (its process: {broker.state})"
        message = f"broker {broker.id} is not registered{state}; {held}"
        kind = "broker_down"
    else:
        message = f"broker {broker.id} is {broker.state} and does not respond; {held}"
        kind = f"broker_{broker.state}"
    step = steps.of_brokers([broker.id]) or ""
    return Finding("degraded", kind, message, [broker.id], [], step)


def _is_troubled(broker: BrokerStatus) -> bool:
    return broker.registered is False or broker.state in ("paused", "stopped", "down")


def _some(names: Sequence[str]) -> str:
    left = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {left} more" if left > 0 else "")


def _brokers_text(brokers: Sequence[int]) -> str:
    return f"broker{'s' * (len(brokers) != 1)} {_some([str(each) for each in brokers])}"
