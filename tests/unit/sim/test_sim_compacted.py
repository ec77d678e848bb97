"""Topics under compaction, as the checkers of the simulator see them."""

from __future__ import annotations

from tests.unit.sim.test_sim_checkers import Setup, stored

from tidelog.core.types import TopicPartition
from tidelog.sim.batches import GONE
from tidelog.sim.observed.replica_logs import LogKey, NodeLogs

TOPIC_ID = bytes(range(16))
KEY = LogKey(TOPIC_ID, 0)
NAME = TopicPartition("t", 0)
DIRECTORY = "/data/t-0"
SEGMENT = f"{DIRECTORY}/00000000000000000000.log"


class TestCompactedTopics:
    """Records 5 and 10 have one key, 11 is a tombstone of another, 7 has no later one."""

    def committed(self) -> Setup:
        setup = Setup()
        for node in setup.nodes.values():
            node.logs = NodeLogs(node.node_id, [node.disk], gaps=True)
            setup.checker.add(node)
            for offset, number in enumerate([5, 11, 7, 10]):
                node.append([number], offset)
        setup.look()
        setup.lead(1, 0, 4)
        assert setup.violations == []
        return setup

    def compact(self, setup: Setup, *kept: tuple[int, int]) -> None:
        node = setup.nodes[1]
        node.truncate(0)
        for offset, number in kept:
            node.append([number], offset)
        setup.look()

    def test_what_a_later_record_stands_for_may_go_and_so_may_tombstones(self) -> None:
        setup = self.committed()
        self.compact(setup, (2, 7), (3, 10))
        assert setup.violations == []
        assert setup.nodes[1].logs.logs[KEY].numbers == [GONE, GONE, 7, 10]

    def test_the_last_record_of_a_key_must_stay(self) -> None:
        setup = self.committed()
        self.compact(setup, (0, 5), (3, 10))
        assert "offset 2" in setup.violations[0] and "record 7 was committed" in setup.violations[0]

    def test_what_is_not_committed_stands_for_nothing(self) -> None:
        setup = self.committed()
        self.compact(setup, (0, 5), (1, 11), (3, 10), (4, 12))
        assert setup.violations != []

    def test_a_swap_counts_from_its_suffix_on(self) -> None:
        setup = self.committed()
        disk = setup.nodes[1].disk
        setup.nodes[1].write(f"{SEGMENT}.swap", stored([7, 10], 2, 0))
        disk.rename(SEGMENT, f"{SEGMENT}.deleted")
        setup.look()
        assert setup.violations == []
        assert setup.nodes[1].logs.logs[KEY].numbers == [GONE, GONE, 7, 10]
        setup.nodes[1].write(SEGMENT.replace(".log", ".index.cleaned"), b"x")
        setup.look()
        assert setup.violations != []

    def test_a_consumer_may_miss_what_another_record_stands_for(self) -> None:
        setup = self.committed()
        setup.history.read(101, TOPIC_ID, 0, 0, [GONE, GONE])
        assert setup.violations == []
        setup.history.read(101, TOPIC_ID, 0, 2, [GONE])
        assert "no committed record explains that" in setup.violations[0]
