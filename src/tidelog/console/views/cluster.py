"""The page of the cluster: brokers, controller, epochs, sessions, and findings with remedies.

`tidelog health` and this page judge a cluster by the same function. Epochs and sessions come from
cluster events, because Metadata responses have neither.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.client.moving import Moves
from tidelog.console.readings import ClusterReading, Event, ReadingPart, Samples
from tidelog.console.views.findings import NO_PLACE, findings_of, of_moves_under_way
from tidelog.console.views.history import cluster_history
from tidelog.console.views.tables import Document, TableQuery, window
from tidelog.console.views.topics import RATE_WINDOW_MS
from tidelog.controller import cluster_events as kinds
from tidelog.core.dataclass import dataclass
from tidelog.local.health import LEVELS, Surroundings, assess, unreachable
from tidelog.local.status import BrokerStatus, ClusterStatus, PartitionStatus, brokers_of


@dataclass(frozen=True, slots=True)
class BrokerSession:
    """The last registration of a broker according to the events in memory."""

    epoch: int
    since_ms: int
    #: Kind of the event that ended the registration, empty while the broker is registered;
    #: `ended_ms` is the time of this event.
    ended_by: str = ""
    ended_ms: int | None = None


def sessions_of(events: tuple[Event, ...] | list[Event]) -> dict[int, BrokerSession]:
    """Return the last registration of each broker, and its end, as the events report them."""
    found: dict[int, BrokerSession] = {}
    for event in events:
        broker, epoch, time_ms = (
            event.get("broker"),
            event.get("broker_epoch"),
            event.get("time_ms"),
        )
        if not (isinstance(broker, int) and isinstance(epoch, int) and isinstance(time_ms, int)):
            continue
        kind = event["kind"]
        known = found.get(broker)
        if kind == kinds.REGISTRATION:
            found[broker] = BrokerSession(epoch, time_ms)
        elif kind in (kinds.SESSION_LOSS, kinds.SHUTDOWN):
            since_ms = known.since_ms if known is not None and known.epoch == epoch else time_ms
            found[broker] = BrokerSession(epoch, since_ms, kind, time_ms)
    return found


def cluster_view(reading: ClusterReading, samples: Samples, params: Mapping[str, str]) -> Document:
    """Return the page of the cluster."""
    metadata = reading.metadata
    if metadata is None:
        reason = reading.problems.get(ReadingPart.CLUSTER)
        if reason is None:
            return {"missing": "No broker has responded yet. The first reading is under way."}
        step = "Start the brokers, or start the console with the address of another broker (-b)."
        return {"missing": f"No broker has responded yet. {reason.rstrip('.')}. {step}"}
    sessions = sessions_of(list(reading.events))
    election = next(
        (each for each in reversed(reading.events) if each["kind"] == kinds.CONTROLLER_ELECTION),
        None,
    )
    status = cluster_status(reading)
    rows = [_broker_row(each, reading, sessions.get(each.id)) for each in status.brokers]
    health = assess(status, reading.minimums, NO_PLACE, None, _surroundings(reading))
    if ReadingPart.CLUSTER in reading.problems:
        health = unreachable("", reading.problems[ReadingPart.CLUSTER], NO_PLACE)
    return {
        "cluster_id": metadata.cluster_id,
        "controller": None if metadata.controller_id < 0 else metadata.controller_id,
        "controller_epoch": None if election is None else election.get("controller_epoch"),
        "controller_since_ms": None if election is None else election.get("time_ms"),
        "level": health.level,
        "levels": list(LEVELS.values()),
        "findings": findings_of([*health.findings, *of_moves_under_way(reading)]),
        "counts": {
            "brokers": len(status.brokers),
            "brokers_down": len(status.down),
            "topics": len(metadata.topics),
            "partitions": len(status.partitions),
            "under_replicated": status.under_replicated,
            "leaderless": status.leaderless,
            "below_min_isr": health.below_min_isr,
            "groups": len(reading.groups),
            "moves": 0 if reading.moves is None else len(reading.moves.under_way),
        },
        "rate": sum(samples.topics.rates(RATE_WINDOW_MS).values()),
        "history": cluster_history(reading),
        "table": window(rows, TableQuery.from_params(params, "broker")),
    }


def cluster_status(reading: ClusterReading) -> ClusterStatus:
    """Return a reading, which must have metadata, as the status that `tidelog health` judges."""
    metadata = reading.metadata
    assert metadata is not None, "the caller looks for brokers first"
    partitions = tuple(
        PartitionStatus(
            tp.topic,
            tp.partition,
            each.leader,
            each.leader_epoch,
            each.replicas,
            each.isr,
            each.offline,
            reading.ends.get(tp),
        )
        for tp, each in metadata.all_partitions()
    )
    return ClusterStatus(
        "", metadata.cluster_id, metadata.controller_id, True, brokers_of(metadata), partitions
    )


def _surroundings(reading: ClusterReading) -> Surroundings:
    return Surroundings(reading.log_dirs, {}, reading.moves, (), ())


def _broker_row(
    broker: BrokerStatus, reading: ClusterReading, session: BrokerSession | None
) -> Document:
    directories = [each for each in reading.log_dirs if each.broker_id == broker.id]
    node = None if reading.metadata is None else reading.metadata.brokers.get(broker.id)
    return {
        "broker": broker.id,
        "address": f"{broker.host}:{broker.port}" if broker.host else None,
        "rack": None if node is None else node.rack,
        "is_controller": broker.controller,
        "is_registered": broker.registered,
        "broker_epoch": None if session is None else session.epoch,
        "session_since_ms": None if session is None or session.ended_by else session.since_ms,
        "session_ended_ms": None if session is None else session.ended_ms,
        "session_ended_by": "" if session is None else session.ended_by,
        "leaders": broker.leaders,
        "replicas": broker.replicas,
        "out_of_sync": broker.out_of_sync,
        "size": sum(each.size_bytes for each in directories) if directories else None,
        "moving": _moving(reading.moves, broker.id),
    }


def _moving(moves: Moves | None, broker: int) -> int:
    under_way = {} if moves is None else moves.under_way
    return sum(broker in (*each.adding, *each.removing) for each in under_way.values())
