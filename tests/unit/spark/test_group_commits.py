"""Commits of a query's offsets to a group, over a scripted coordinator."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.client.fake_cluster import FakeCluster
from tests.support.client.fake_coordinator import FakeCoordinator

from tidelog.core.errors import ConfigError
from tidelog.core.types import TopicPartition
from tidelog.spark.streaming import group_commits
from tidelog.spark.streaming.group_commits import GroupCommitListener
from tidelog.wire.registry import OFFSET_COMMIT

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
GROUP_AUTHORIZATION_FAILED = 30


@pytest.fixture
def coordinator() -> Iterator[FakeCoordinator]:
    cluster = FakeCluster(1)
    cluster.topics["t"] = [1, 1]
    yield FakeCoordinator(cluster)
    cluster.close()


def listening(coordinator: FakeCoordinator, query_name: str | None = None) -> GroupCommitListener:
    return GroupCommitListener(coordinator.cluster.bootstrap, "g", query_name)


def progress(end: str, name: str | None = None) -> Any:
    sources = [SimpleNamespace(endOffset=end), SimpleNamespace(endOffset="7")]
    return SimpleNamespace(progress=SimpleNamespace(name=name, sources=sources))


def terminated() -> Any:
    return SimpleNamespace(runId="r")


def test_the_end_of_each_batch_is_committed(coordinator: FakeCoordinator) -> None:
    listener = listening(coordinator)
    listener.onQueryProgress(progress('{"t": {"0": 5, "1": 2}}'))
    listener.onQueryTerminated(terminated())
    assert coordinator.committed == {T0: 5, T1: 2}
    listener.onQueryProgress(progress('{"t": {"0": 9}}'))
    assert listener.close()
    assert coordinator.committed == {T0: 9, T1: 2}


def test_other_queries_are_not_committed(coordinator: FakeCoordinator) -> None:
    listener = listening(coordinator, "mine")
    listener.onQueryProgress(progress('{"t": {"0": 5}}', "other"))
    listener.onQueryProgress(progress('{"t": {"1": 4}}', "mine"))
    assert listener.close()
    assert coordinator.committed == {T1: 4}


def test_a_commit_that_fails_is_repeated_with_what_came_since(
    coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commits, "_RETRY_S", 0.01)
    coordinator.errors[OFFSET_COMMIT] = [GROUP_AUTHORIZATION_FAILED]
    listener = listening(coordinator)
    listener.onQueryProgress(progress('{"t": {"0": 5, "1": 2}}'))
    listener.onQueryProgress(progress('{"t": {"0": 6}}'))
    assert listener.close()
    assert coordinator.committed == {T0: 6, T1: 2}


def test_a_cluster_that_does_not_respond_fails_nothing(
    coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commits, "_LAST_COMMIT_S", 0.02)
    monkeypatch.setattr(group_commits, "_COMMIT_MS", 10)
    coordinator.cluster.close()
    listener = listening(coordinator)
    listener.onQueryProgress(progress('{"t": {"0": 5}}'))
    listener.onQueryTerminated(terminated())
    assert not listener.close()


def test_it_stays_on_the_driver(coordinator: FakeCoordinator) -> None:
    with pytest.raises(TypeError, match="belongs to the driver"):
        pickle.dumps(listening(coordinator))


def test_a_wrong_address_is_an_error_at_once() -> None:
    with pytest.raises(ConfigError):
        GroupCommitListener("nowhere", "g")
