"""Moves from the console: plans, their confirmation, throttles, cancels, refused bodies."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.console_readings import metadata, partition

from tidelog.client.moving import MoveAsked, MoveQueued, Moves, MoveUnderWay
from tidelog.client.upkeep import LogDirDescription, ReplicaSize
from tidelog.console.actions import ACTIONS
from tidelog.console.move_plans import rate_of
from tidelog.console.views.tables import BadQuery
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MIB = 1 << 20


class Cluster:
    """Three brokers with a topic of two partitions on brokers 1 and 2, and the moves under way."""

    def __init__(
        self, moves: Moves | None = None, refused: dict[TopicPartition, str] | None = None
    ):
        self.moves = moves or Moves({}, {}, False, True)
        self.refused = refused or {}
        self.asked: list[tuple[Any, ...]] = []

    def reassignments(self) -> Moves:
        return self.moves

    def metadata(self) -> Any:
        return metadata({"t": [partition(n, 1, [1, 2], [1, 2]) for n in (0, 1)]})

    def describe_log_dirs(self, broker: int) -> Any:
        sizes = tuple(ReplicaSize(*tp, 10 * MIB, 0, False) for tp in (T0, T1) if broker < 3)
        return [LogDirDescription(broker, "/d", ErrorCode.NONE, sizes, 1 << 40, 1 << 40)]

    def _results(self, partitions: Any) -> dict[TopicPartition, MoveAsked]:
        return {
            tp: MoveAsked(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT if tp in self.refused else ErrorCode.NONE,
                self.refused.get(tp, ""),
            )
            for tp in partitions
        }

    def reassign(self, targets: Any, expected: Any = None, *, throttle: Any = None) -> Any:
        self.asked.append(("reassign", dict(targets), expected and dict(expected), throttle))
        return self._results(targets)

    def cancel_reassignments(self, ended: Any) -> Any:
        self.asked.append(("cancel", {tp: list(each) for tp, each in ended.items()}))
        return self._results(ended)


MOVING = Moves(
    {T0: MoveUnderWay((3, 2, 1), (3,), (1,), (1, 2))}, {T1: MoveQueued((2, 3), "its turn")},
    False, True,
)  # fmt: skip


def run(action: str, cluster: Cluster, **body: Any) -> Any:
    client: Any = cluster
    return ACTIONS[action](client, body)


def test_a_plan_is_shown_and_then_begun_as_it_was_shown() -> None:
    cluster = Cluster()
    wanted = {"kind": "topic", "topic": "t", "brokers": [2, 3], "throttle": "1 MiB"}
    planned = run("plan", cluster, **wanted, dry_run=True)
    assert cluster.asked == []
    assert planned["text"].startswith("2 moves, which copy 20.0 MiB. At 1.0 MiB/s for each broker,")
    assert "the copies take 20 s or longer" in planned["text"]
    assert [row["before"] for row in planned["rows"]] == ["[1, 2]"] * 2
    done = run(
        "plan", cluster, **wanted, plan=[list(map(to_json, each)) for each in planned["plan"]]
    )
    assert done["text"] == "2 moves began."
    [(name, targets, expected, throttle)] = cluster.asked
    assert (name, throttle) == ("reassign", MIB)
    assert expected == {T0: (1, 2), T1: (1, 2)}
    assert all(sorted(each) == [2, 3] for each in targets.values()) and len(targets) == 2


def to_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("kind", ["drain", "decommission"])
def test_brokers_are_emptied(kind: str) -> None:
    planned = run("plan", Cluster(), kind=kind, brokers=[1], dry_run=True)
    assert len(planned["plan"]) == 2
    assert all(1 not in after for _, _, _, after in planned["plan"])


def test_a_plan_without_moves_says_so() -> None:
    planned = run("plan", Cluster(), kind="topic", topic="t", brokers=[1, 2], dry_run=True)
    assert (planned["text"], planned["rows"], planned["plan"]) == ("Nothing would move.", [], [])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"dry_run": True}, "kind=None: rebalance, drain"),
        ({"kind": "drain", "dry_run": True}, "a list of broker ids"),
        ({"kind": "drain", "brokers": [True], "dry_run": True}, "a list of broker ids"),
        ({"kind": "topic", "brokers": [1], "dry_run": True}, "the name of a topic"),
        ({"kind": "topic", "topic": "t", "brokers": [9], "dry_run": True}, "not registered"),
        ({"kind": "rebalance", "throttle": "fast", "dry_run": True}, "a rate such as 10 MiB"),
        ({"kind": "rebalance"}, "the moves of a dry run"),
        ({"kind": "rebalance", "plan": 7}, "the moves of a dry run"),
        ({"kind": "rebalance", "plan": [["t", 0, [1]]]}, "the moves of a dry run"),
        ({"kind": "rebalance", "plan": [["t", 0, [1], ["2"]]]}, "the moves of a dry run"),
        ({"kind": "rebalance", "plan": [[7, 0, [1], [2]]]}, "the moves of a dry run"),
    ],
)
def test_a_body_that_is_no_plan_is_refused(body: dict[str, Any], reason: str) -> None:
    cluster = Cluster()
    with pytest.raises(BadQuery, match=reason):
        run("plan", cluster, **body)
    assert cluster.asked == []


def test_no_plan_is_made_beside_other_moves() -> None:
    with pytest.raises(BadQuery, match="moves are under way"):
        run("plan", Cluster(MOVING), kind="rebalance", dry_run=True)


def test_partitions_that_are_refused_are_named() -> None:
    plan = [["t", 0, [1, 2], [2, 3]], ["t", 1, [1, 2], [2, 3]]]
    some = run("plan", Cluster(refused={T1: "it has changed"}), kind="rebalance", plan=plan)
    assert some["text"] == "1 of 2 moves began. t-1 was refused: it has changed"
    with pytest.raises(KafkaError, match="t-0: frozen"):
        run("plan", Cluster(refused={T0: "frozen", T1: "frozen"}), kind="rebalance", plan=plan)


def test_the_throttle_of_moves_under_way_changes() -> None:
    cluster = Cluster(MOVING)
    shown = run("throttle", cluster, throttle="2 MiB", dry_run=True)
    assert shown["text"] == "1 move would have at most 2.0 MiB/s for each broker."
    assert run("throttle", cluster, throttle="0")["text"] == "1 move now with no throttle."
    assert cluster.asked == [("reassign", {T0: (3, 2)}, None, 0)]
    with pytest.raises(BadQuery, match="a rate such as 10 MiB expected, or 0"):
        run("throttle", cluster)
    with pytest.raises(BadQuery, match="no partition moves now"):
        run("throttle", Cluster(), throttle="1")


def test_moves_under_way_and_queued_are_cancelled() -> None:
    cluster = Cluster(MOVING)
    shown = run("cancel", cluster, dry_run=True)
    assert shown["text"] == "2 moves would be cancelled."
    assert [(row["before"], row["after"]) for row in shown["rows"]] == [("[3, 2]", "[1, 2]")]
    assert cluster.asked == []
    assert run("cancel", cluster)["text"] == "2 moves cancelled."
    assert cluster.asked == [("cancel", {T0: [(3, 2)], T1: [(2, 3)]})]
    with pytest.raises(BadQuery, match="no partition moves now"):
        run("cancel", Cluster())


@pytest.mark.parametrize(
    ("text", "rate"),
    [("", None), (None, None), (5000, 5000), ("0", 0), ("10 MiB", 10 * MIB), ("1kib/s", 1024),
     ("2 GiB/s", 2 << 30)],
)  # fmt: skip
def test_rates(text: Any, rate: int | None) -> None:
    assert rate_of({"throttle": text}) == rate


@pytest.mark.parametrize("text", ["-1", "10 MB", "1.5 MiB", True, "MiB", "9" * 30, "٣"])
def test_texts_that_are_no_rate(text: Any) -> None:
    with pytest.raises(BadQuery, match="throttle="):
        rate_of({"throttle": text})
