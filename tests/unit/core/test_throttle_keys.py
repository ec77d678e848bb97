"""What the lists of throttled replicas mean on a broker (R15, KIP-73)."""

from __future__ import annotations

import pytest

from tidelog.core.config import BrokerConfig
from tidelog.core.errors import ConfigError
from tidelog.core.throttle_keys import UNLIMITED, ThrottledPartitions, on_broker
from tidelog.core.topic_config import TopicConfig

BROKER = BrokerConfig.from_properties({"broker.id": "1"})


def listed(text: str) -> tuple[str, ...]:
    config = TopicConfig.of(BROKER, {"leader.replication.throttled.replicas": text})
    return config.leader_replication_throttled_replicas


@pytest.mark.parametrize(
    ("text", "partitions"),
    [
        ("", []),
        ("0:1,2:1,3:12", [0, 2]),
        (" 0:1 , 1:2 ", [0]),
        ("0:2,,1:1", [1]),
        ("007:01", [7]),
    ],
)
def test_a_list_throttles_the_partitions_that_name_the_broker(
    text: str, partitions: list[int]
) -> None:
    found = on_broker(listed(text), 1)
    assert found == ThrottledPartitions(numbers=frozenset(partitions))
    assert bool(found) == bool(partitions)
    assert [number for number in range(9) if number in found] == partitions


def test_a_star_throttles_all() -> None:
    found = on_broker(listed("*"), 1)
    assert found and 0 in found and 99 in found


@pytest.mark.parametrize("text", ["0", "0:1,2", "*,0:1", "0:1;1:1", "a:1", "0:1:2", "-1:1"])
def test_another_list_is_refused_by_what_is_wrong(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        listed(text)
    message = str(caught.value)
    assert "* or a comma list of partition:broker expected" in message
    assert "names no replica" in message


def test_the_defaults_are_those_of_kafka() -> None:
    assert BROKER.leader_replication_throttled_rate == UNLIMITED
    assert BROKER.follower_replication_throttled_rate == UNLIMITED
    assert BROKER.replication_quota_window_num == 11
    assert BROKER.replication_quota_window_size_seconds == 1


@pytest.mark.parametrize("text", ["-1", "1.5", "10MB", ""])
def test_a_rate_is_a_number_of_bytes(text: str) -> None:
    with pytest.raises(ConfigError, match=r"leader\.replication\.throttled\.rate='.*at least 0"):
        BROKER.with_dynamic({"leader.replication.throttled.rate": text})
