"""What a test says about its cluster: the nearest word counts, and nonsense is named."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.testing.spec import ClusterSpec, SpecError, config_lines

PARTITIONS, CREATE = "num.partitions", "auto.create.topics.enable"


def test_what_is_said_later_counts_key_by_key() -> None:
    outer = ClusterSpec().with_("module", {"brokers": 5, "config": {PARTITIONS: 1, CREATE: True}})
    inner = outer.with_("function", {"config": {PARTITIONS: 2}, "log_dirs": 2})
    assert inner == ClusterSpec(5, {PARTITIONS: "2", CREATE: "true"}, 2)


def test_a_parameter_is_a_number_of_brokers_or_a_dict() -> None:
    assert ClusterSpec().with_parameter("p", 1).brokers == 1
    assert ClusterSpec().with_parameter("p", {"log_dirs": 3}).log_dirs == 3


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (
            {"borkers": 3},
            "'borkers' is none of brokers, config, log_dirs, store, port; did you mean brokers?",
        ),
        (
            {"config": {"num.partitons": 3}},
            "config has 'num.partitons', which is no key of a broker's server.properties;"
            " did you mean num.partitions?",
        ),
        ({"config": {"colour": "red"}}, "which is no key of a broker's server.properties"),
        ({"brokers": 0}, "brokers=0: an integer of at least 1 expected"),
        ({"brokers": True}, "brokers=True: an integer"),
        ({"config": ["a=b"]}, "a dict of keys and values expected"),
        ({"store": None}, "store=None: 'embedded' or"),
        ({"port": "9092"}, "port='9092': the port of broker 1 expected"),
    ],
)
def test_nonsense_is_named(wanted: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError, match="here: .*") as info:
        ClusterSpec().with_("here", wanted)
    assert told in str(info.value)


def test_a_parameter_that_is_neither_is_refused() -> None:
    with pytest.raises(SpecError, match="'three': a number of brokers or a dict expected"):
        ClusterSpec().with_parameter("p", "three")


def test_config_lines_are_keys_and_values() -> None:
    assert config_lines("ini", ["a = b=c", "d="]) == {"a": "b=c", "d": ""}
    with pytest.raises(SpecError, match="'a': key=value expected"):
        config_lines("ini", ["a"])
