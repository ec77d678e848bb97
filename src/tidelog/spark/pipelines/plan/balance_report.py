"""The report of a plan: moves with reasons, batches, and the balance before and after.

Loads are percentages of a broker's share of the total load: 100 % is exactly its share. A terminal
shows the largest moves; the plan's file `moves.json` has all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tidelog.spark.pipelines.plan.cluster_model import (
    BrokerLoad,
    ClusterModel,
    Goals,
    broker_loads,
    present_placement,
)
from tidelog.spark.pipelines.plan.moves import Batch, PartitionMove
from tidelog.spark.pipelines.plan.placement import Planned
from tidelog.spark.pipelines.report import Cell, PipelineReport, Plot, Table

_ROWS: Final = 40
_MIB: Final = 1024 * 1024


def balance_report(
    cluster: ClusterModel,
    goals: Goals,
    planned: Planned,
    moves: Sequence[PartitionMove],
    batches: Sequence[Batch],
    bandwidth: float,
    *,
    with_rates: bool,
) -> PipelineReport:
    """Return the report of a plan."""
    before = broker_loads(cluster, present_placement(cluster))
    after = broker_loads(cluster, planned.placement)
    seconds = sum(each.seconds(bandwidth) for each in batches)
    return PipelineReport(
        title="Reassignment plan",
        verdict=_verdict(moves, batches, planned, seconds),
        holds=True,
        facts=_facts(cluster, goals, planned, moves, batches, seconds, with_rates),
        tables=(
            _brokers(cluster, goals, planned, before, after),
            _batches(batches, bandwidth),
            _moves(batches),
        ),
        figures=tuple(_figures(before, after, with_rates)),
    )


def _verdict(
    moves: Sequence[PartitionMove], batches: Sequence[Batch], planned: Planned, seconds: float
) -> str:
    if not moves:
        return "Nothing to move: every broker is within its limits"
    copied = sum(1 for each in moves if each.size_bytes)
    return (
        f"{len(moves)} partitions change, {copied} of them copy {_size(planned.moved_bytes)} in"
        f" {len(batches)} batches, about {seconds:,.0f} s"
    )


def _facts(
    cluster: ClusterModel,
    goals: Goals,
    planned: Planned,
    moves: Sequence[PartitionMove],
    batches: Sequence[Batch],
    seconds: float,
    with_rates: bool,
) -> tuple[tuple[str, Cell], ...]:
    return (
        ("brokers", len(cluster.brokers)),
        ("drained", ", ".join(map(str, sorted(goals.drain))) or "none"),
        ("racks", len(set((cluster.racks(goals) or {}).values()))),
        ("partitions", len(cluster.partitions)),
        ("tolerance, %", 100 * goals.tolerance),
        ("network load", "from samples" if with_rates else "unknown: no samples"),
        ("partitions that change", len(moves)),
        ("replicas that are copied", sum(len(each.copies) for each in moves)),
        ("bytes that are copied", planned.moved_bytes),
        ("cost above the lower bound, %", float(f"{100 * planned.gap:.3g}")),
        ("batches", len(batches)),
        ("seconds at the given bandwidth", round(seconds, 1)),
    )


def _brokers(
    cluster: ClusterModel,
    goals: Goals,
    planned: Planned,
    before: Mapping[int, BrokerLoad],
    after: Mapping[int, BrokerLoad],
) -> Table:
    racks = {each.broker_id: each.rack or "" for each in cluster.brokers}
    limits = planned.limits
    columns: tuple[tuple[str, Mapping[int, float], Callable[[BrokerLoad], float]], ...] = (
        ("disk", limits.disk, lambda each: each.disk_bytes),
        ("in", limits.incoming, lambda each: each.in_rate),
        ("leaders", limits.leaders, lambda each: each.leaders),
        ("out", limits.outgoing, lambda each: each.out_rate),
    )
    rows = []
    for broker in sorted({*before, *after}):
        old, new = before.get(broker, BrokerLoad()), after.get(broker, BrokerLoad())
        cells: list[Cell] = [broker, racks.get(broker, ""), old.replicas, new.replicas]
        for _, shares, amount in columns:
            share = shares.get(broker, 0.0)
            cells += [_part(amount(old), share), _part(amount(new), share)]
        rows.append(tuple(cells))
    names = [f"{name} {word}" for name, _, _ in columns for word in ("before %", "after %")]
    beyond = sum(
        abs(cell - 100) > 100 * goals.tolerance + 0.5
        for row in rows
        for cell in row[5::2]
        if isinstance(cell, float)
    )
    note = "Parts of a broker's share: 100 % is even, empty: the broker is to hold nothing."
    if beyond:
        note += (
            f" {beyond} loads stay more than {100 * goals.tolerance:g} % from their share: their"
            " partitions are too large to be divided, or the goals contradict each other there."
        )
    return Table(
        "Balance", ("broker", "rack", "replicas before", "after", *names), tuple(rows), note
    )


def _part(amount: float, share: float) -> float | None:
    return float(f"{100 * amount / share:.4g}") if share > 0 else None


def _batches(batches: Sequence[Batch], bandwidth: float) -> Table:
    return Table.of(
        "Batches",
        list(enumerate(batches, 1)),
        (
            ("batch", lambda row: row[0]),
            ("partitions", lambda row: len(row[1].moves)),
            ("bytes", lambda row: sum(move.size_bytes for move in row[1].moves)),
            ("bytes of the busiest broker", lambda row: row[1].busiest),
            ("seconds", lambda row: round(row[1].seconds(bandwidth), 1)),
        ),
        "A batch lasts as long as its busiest broker receives or sends.",
    )


def _moves(batches: Sequence[Batch]) -> Table:
    every = [(number, move) for number, batch in enumerate(batches, 1) for move in batch.moves]
    every.sort(key=lambda each: (-each[1].size_bytes, each[0], each[1].tp))
    rows = tuple(
        (str(it.tp), _ids(it.before), _ids(it.after), it.size_bytes, number, it.reason)
        for number, it in every[:_ROWS]
    )
    more = f"The {_ROWS} largest of {len(every)}; moves.json of --out has all."
    columns = ("partition", "replicas before", "replicas after", "bytes", "batch", "reason")
    return Table("Moves", columns, rows, more * (len(every) > _ROWS))


def _figures(
    before: Mapping[int, BrokerLoad], after: Mapping[int, BrokerLoad], with_rates: bool
) -> list[Plot]:
    brokers = sorted({*before, *after})
    shown: list[tuple[str, str, Callable[[BrokerLoad], float]]] = [
        ("Disk", "MiB", lambda each: each.disk_bytes / _MIB),
        ("Leaders", "partitions", lambda each: float(each.leaders)),
    ]
    if with_rates:
        shown += [
            ("Incoming network", "KiB/s", lambda each: each.in_rate / 1024),
            ("Outgoing network", "KiB/s", lambda each: each.out_rate / 1024),
        ]
    return [
        Plot.bars(
            f"{title} by broker",
            "broker",
            unit,
            brokers,
            {
                label: [amount(loads.get(broker, BrokerLoad())) for broker in brokers]
                for label, loads in (("before", before), ("after", after))
            },
        )
        for title, unit, amount in shown
    ]


def _ids(replicas: Sequence[int]) -> str:
    return ",".join(map(str, replicas))


def _size(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} bytes"
