"""`log-dirs cordon` and `uncordon`: which directories are cordoned after them (D12, KIP-1066)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.cli import check, run
from tests.support.client.fake_logs import FakeLogs

from tidelog.cli import documents
from tidelog.cli.cordons import cordoned_after
from tidelog.cli.names import NotFoundError
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tidelog.wire.messages.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from tidelog.wire.registry import (
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    INCREMENTAL_ALTER_CONFIGS,
)

KNOWN = ["/a", "/b", "/c"]


@pytest.mark.rule("D12")
@pytest.mark.parametrize(
    ("before", "paths", "after"),
    [
        ([], ["/b/"], ["/b"]),
        (["/c"], ["/a"], ["/a", "/c"]),
        (["/a"], ["/a"], ["/a"]),
        (["*"], ["/a"], ["*"]),
        (["/a"], ["*"], ["*"]),
    ],
)
def test_a_cordon_is_added(before: list[str], paths: list[str], after: list[str]) -> None:
    assert cordoned_after(before, paths, KNOWN, is_cordon=True) == after


@pytest.mark.rule("D12")
@pytest.mark.parametrize(
    ("before", "paths", "after"),
    [
        (["/a", "/b"], ["/b"], ["/a"]),
        ([], ["/b"], []),
        (["*"], ["/b"], ["/a", "/c"]),
        (["/a"], ["*"], []),
    ],
)
def test_a_cordon_is_taken_away(before: list[str], paths: list[str], after: list[str]) -> None:
    assert cordoned_after(before, paths, KNOWN, is_cordon=False) == after


def test_a_path_that_is_none_of_the_brokers_is_named_with_those_that_are() -> None:
    with pytest.raises(NotFoundError, match="/d is no log directory of the broker; it has /a, /b"):
        cordoned_after([], ["/d"], KNOWN, is_cordon=True)


@pytest.fixture
def logs() -> Iterator[FakeLogs]:
    made = FakeLogs()
    yield made
    made.close()


def test_the_broker_is_asked_to_keep_the_cordons(
    logs: FakeLogs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = logs[1]
    found = [DescribeLogDirsResult(log_dir=path) for path in KNOWN]
    broker.on(DESCRIBE_LOG_DIRS, lambda _: DescribeLogDirsResponse(results=found))
    value = DescribeConfigsResourceResult("cordoned.log.dirs", "/c", config_source=2)
    result = DescribeConfigsResult(resource_type=4, resource_name="1", configs=[value])
    broker.on(DESCRIBE_CONFIGS, lambda _: DescribeConfigsResponse(results=[result]))
    asked: list[Any] = []

    def altered(message: Any) -> IncrementalAlterConfigsResponse:
        asked.extend(
            (each.name, each.value) for resource in message.resources for each in resource.configs
        )
        done = AlterConfigsResourceResponse(resource_type=4, resource_name="1")
        return IncrementalAlterConfigsResponse(responses=[done])

    broker.on(INCREMENTAL_ALTER_CONFIGS, altered)
    words = ("log-dirs", "cordon", "--broker", "1", "/a", "-b", logs.bootstrap, "-o", "json")
    assert run(monkeypatch, *words) == 0
    check(json.loads(capsys.readouterr().out), documents.ConfigsChanged)
    assert asked == [("cordoned.log.dirs", "/a,/c")]
