"""Words for states that other tests see only in passing, each with what makes it true."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.cli.documents import LogDirDescribed
from tidelog.cli.log_dirs import _state
from tidelog.client.move_progress import MoveSample, MoveState, state_of
from tidelog.client.moving import MoveUnderWay
from tidelog.client.upkeep import ReplicaSize

HELD = [ReplicaSize("t", 0, 1, 0, False)]


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ({}, "ok"),
        ({"read_only": True}, "read-only"),
        ({"slow": True}, "slow"),
        ({"draining": True, "cordoned": True}, "draining"),
        ({"draining": True, "cordoned": True, "replicas": []}, "drained"),
        ({"cordoned": True}, "cordoned"),
        ({"read_only": True, "slow": True}, "read-only, slow"),
        ({"error": "KAFKA_STORAGE_ERROR", "slow": True}, "KAFKA_STORAGE_ERROR"),
    ],
)
def test_a_log_directory_has_the_words_of_what_is_the_case(
    facts: dict[str, Any], word: str
) -> None:
    values: dict[str, Any] = {
        "broker": 1,
        "log_dir": "/a",
        "error": None,
        "size_bytes": 1,
        "usable_bytes": 1,
        "total_bytes": 1,
        "read_only": False,
        "cordoned": False,
        "slow": False,
        "draining": False,
        "replicas": HELD,
        "last_known": [],
    }
    assert _state(LogDirDescribed(**{**values, **facts})) == word


def test_a_move_is_paused_while_too_few_replicas_are_in_sync() -> None:
    move = MoveUnderWay((3, 1, 2), (3,), (2,), paused="too few replicas are in sync")
    assert state_of(MoveSample(move, 1, (1,), {})) is MoveState.PAUSED
    assert state_of(MoveSample(move, 1, (1, 3), {})) is MoveState.COMPLETING
