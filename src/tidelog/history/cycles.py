"""Cycles of transactions that wrote before, or read from, each other (Adya's G0 and G1c).

A write edge leads from a record's transaction to the transaction of the partition's next record, by
offset. A read edge leads from the transaction that sent a record to a transaction that polled it.
Kafka promises no order between transactions, so cycles with write edges are allowed. A cycle of
read edges alone would mean that transactions saw each other's records before any of them was
committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from tidelog.history.tables import Tables

Edges = Mapping[int, Sequence[int]]


def find_cycles(tables: Tables) -> None:
    """Report one cycle, as G0 or G1c, for each strongly connected group of transactions."""
    transactions = tables.transactions
    if not transactions.lines:
        return
    writes = _write_edges(tables)
    reads = _read_edges(tables)
    everything: dict[int, list[int]] = {}
    for edges in (writes, reads):
        for node, following in edges.items():
            everything.setdefault(node, []).extend(following)
    for group in components(writes, len(transactions.lines)):
        _report(tables, "G0", True, cycle_in(writes, group), "wrote before")
    by_reads = components(reads, len(transactions.lines))
    for group in by_reads:
        _report(tables, "G1c", False, cycle_in(reads, group), "was seen by")
    in_read_cycles = {node: None for group in by_reads for node in group}
    for group in components(everything, len(transactions.lines)):
        members = dict.fromkeys(group)
        has_reads = any(to in members for node in group for to in reads.get(node, ()))
        if has_reads and not any(node in in_read_cycles for node in group):
            cycle = cycle_in(everything, group)
            _report(tables, "G1c", True, cycle, "wrote before, or was seen by,")


def _write_edges(tables: Tables) -> dict[int, list[int]]:
    edges: dict[int, list[int]] = {}
    node_of = tables.values.node
    for partition in tables.partitions:
        before = -1
        for _, index in sorted(partition.claims.items()):
            node = node_of.get(index, -1)
            if node >= 0 and tables.transactions.counts(node):
                if before not in (-1, node):
                    edges.setdefault(before, []).append(node)
                before = node
    return edges


def _read_edges(tables: Tables) -> dict[int, list[int]]:
    edges: dict[int, list[int]] = {}
    counts = tables.transactions.counts
    for reader, value in tables.transactions.polls:
        writer = tables.values.node.get(value, -1)
        if writer not in (-1, reader) and counts(writer) and counts(reader):
            edges.setdefault(writer, []).append(reader)
    return edges


def _report(tables: Tables, name: str, is_allowed: bool, cycle: list[int], relation: str) -> None:
    lines = [tables.transactions.lines[node] for node in cycle]
    words = f" {relation} that of line ".join(str(line) for line in (*lines, lines[0]))
    tables.report.add(name, is_allowed, "", f"the transaction of line {words}", lines)


def components(edges: Edges, nodes: int) -> list[list[int]]:
    """Return the strongly connected components of more than one node.

    The algorithm is Tarjan's, without recursion.
    """
    order = [-1] * nodes
    low = [0] * nodes
    is_open = bytearray(nodes)
    stack: list[int] = []
    found: list[list[int]] = []
    count = 0
    for root in edges:
        if order[root] >= 0:
            continue
        work: list[tuple[int, int]] = [(root, 0)]
        while work:
            node, at = work.pop()
            if at == 0:
                order[node] = low[node] = count
                count += 1
                stack.append(node)
                is_open[node] = 1
            following = edges.get(node, ())
            if at > 0:
                low[node] = min(low[node], low[following[at - 1]])
            while at < len(following):
                to = following[at]
                at += 1
                if order[to] < 0:
                    work += [(node, at), (to, 0)]
                    break
                if is_open[to]:
                    low[node] = min(low[node], order[to])
            else:
                if low[node] == order[node]:
                    group = _closed(stack, node, is_open)
                    if len(group) > 1:
                        found.append(group)
    return found


def _closed(stack: list[int], node: int, is_open: bytearray) -> list[int]:
    at = len(stack) - 1
    while stack[at] != node:
        at -= 1
    group = stack[at:]
    del stack[at:]
    for member in group:
        is_open[member] = 0
    return group


def cycle_in(edges: Edges, group: Sequence[int]) -> list[int]:
    """Return a shortest cycle through the first node of a component, edge by edge."""
    members = dict.fromkeys(group)
    start = group[0]
    came_from: dict[int, int] = {}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        for to in edges.get(node, ()):
            if to == start:
                path = [node]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if to in members and to not in came_from:
                came_from[to] = node
                waiting.append(to)
    raise AssertionError(f"no circle through {start} in its own component")
