"""Rules that a configuration alone can keep or break."""

from __future__ import annotations

import pytest

from tidelog.core.config import BrokerConfig
from tidelog.core.errors import ConfigError


def broker(**keys: str) -> BrokerConfig:
    properties = {key.replace("_", "."): value for key, value in keys.items()}
    return BrokerConfig.from_properties({"broker.id": "1", **properties})


@pytest.mark.rule("F9")
@pytest.mark.parametrize("wait_ms", [10_000, 10_001])
def test_a_broker_whose_fetches_wait_as_long_as_the_lag_limit_does_not_start(wait_ms: int) -> None:
    values = rf"replica\.fetch\.wait\.max\.ms={wait_ms} .*replica\.lag\.time\.max\.ms=10000"
    with pytest.raises(ConfigError, match=values):
        broker(replica_lag_time_max_ms="10000", replica_fetch_wait_max_ms=str(wait_ms))


@pytest.mark.rule("F9")
def test_fetches_that_wait_less_than_the_lag_limit_are_fine() -> None:
    config = broker(replica_lag_time_max_ms="10000", replica_fetch_wait_max_ms="9999")
    assert config.replica_fetch_wait_max_ms == 9999


@pytest.mark.rule("F9")
@pytest.mark.parametrize(("session_ms", "warnings"), [(9_999, 0), (10_000, 1)])
def test_a_session_timeout_that_is_not_below_the_lag_limit_is_warned_about(
    session_ms: int, warnings: int
) -> None:
    config = broker(replica_lag_time_max_ms="10000", metadata_session_timeout_ms=str(session_ms))
    named = [line for line in config.warnings if line.startswith("metadata.session.timeout.ms=")]
    assert len(named) == warnings


@pytest.mark.rule("D1")
def test_log_dirs_is_a_list_of_directories() -> None:
    assert broker(log_dirs="/a, /b").log_dirs == ("/a", "/b")
    for text in ("/a, /b, /a/", "/a, /b, /b/data"):
        with pytest.raises(ConfigError, match=r"log\.dirs"):
            broker(log_dirs=text)
