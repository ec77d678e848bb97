"""The checker of damage that brokers have read finds what is still there (V68)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.sim import checked

from tidelog.sim.checkers.log_dir_checker import DamageChecker
from tidelog.sim.disk import SimDisk

PATH = "/data/00.log"


class Scene:
    """One broker with one file, in which it has read damage."""

    def __init__(self) -> None:
        self.disk = SimDisk("/data")
        self.disk.create(PATH).data[:] = b"a batch of some bytes"
        life: Any = SimpleNamespace(node_id=1, number=3)
        self.broker: Any = SimpleNamespace(life=life, logs=SimpleNamespace(disks=[self.disk]))
        brokers: dict[int, Any] = {1: self.broker}
        self.checker = DamageChecker(checked([], brokers=brokers))
        self.disk.flip(PATH, 4, 1)
        for _ in range(2):
            self.checker.found(life, PATH)


def test_damage_that_a_running_broker_has_read_and_kept_is_told() -> None:
    scene = Scene()
    assert scene.checker.unrepaired() == f"broker 1 has read damage of {PATH}, which is still there"
    assert scene.checker.found_count == 1


@pytest.mark.parametrize("life", [None, SimpleNamespace(node_id=1, number=4)])
def test_a_broker_that_restarted_has_forgotten_it(life: Any) -> None:
    scene = Scene()
    scene.broker.life = life
    assert scene.checker.unrepaired() == ""


def test_damage_is_gone_with_its_bytes_or_its_file() -> None:
    scene = Scene()
    del scene.disk.file(PATH).data[4:]
    assert scene.checker.unrepaired() == ""
    scene = Scene()
    scene.disk.unlink(PATH)
    assert scene.checker.unrepaired() == ""
