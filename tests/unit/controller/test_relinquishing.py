"""Leaders that step back because their reads are slow, where something else is going on (F11)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.controller.values import (
    TP,
    answer_of,
    delete,
    epoch,
    loaded,
    one_partition,
    settings,
    state,
    state_writes,
    step,
    topic_id,
)

from tidelog.controller.decision import Effects
from tidelog.controller.elections.leaders import MinimumRead
from tidelog.controller.elections.relinquishing import RelinquishAsked
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicId
from tidelog.wire.messages.relinquish_leadership import (
    RelinquishedPartition,
    RelinquishedPartitionResult,
    RelinquishedTopic,
    RelinquishLeadershipRequest,
)


def relinquishes(*topic_ids: TopicId) -> RelinquishAsked:
    """Broker 1 asks to be replaced as the leader of partition 0 of these topics."""
    topics = [RelinquishedTopic(one, [RelinquishedPartition(0, 5)]) for one in topic_ids]
    return RelinquishAsked(1, RelinquishLeadershipRequest(1, epoch(1), topics))


def results(effects: Effects) -> list[RelinquishedPartitionResult]:
    """The outcomes of the partitions, in the order of the answer."""
    return [part for one in answer_of(effects).topics for part in one.partitions]


@pytest.mark.rule("F11")
def test_a_topic_that_does_not_exist_is_refused_and_the_others_are_served() -> None:
    unknown = topic_id("t", 2)
    writes, effects = step(loaded(), relinquishes(unknown, topic_id("t")))
    assert [one.topic_id for one in answer_of(effects).topics] == [unknown, topic_id("t")]
    refused, done = results(effects)
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert "there is no topic" in (refused.error_message or "")
    assert done.error_code == ErrorCode.NONE
    assert state_writes(writes)[TP].leader == 2


@pytest.mark.rule("F11")
def test_nobody_is_elected_for_a_topic_that_is_being_deleted() -> None:
    controller = loaded()
    step(controller, delete("t", ticket=9))
    assert controller.image.is_deleting("t") and TP in controller.image.states
    writes, effects = step(controller, relinquishes(topic_id("t")))
    assert state_writes(writes) == {}
    assert [one.error_code for one in results(effects)] == [ErrorCode.UNKNOWN_TOPIC_ID]


@pytest.mark.rule("F11")
def test_a_partition_that_this_decision_changes_anyway_is_left_to_the_next_request() -> None:
    found = one_partition(state((1, 2), elr={3: epoch(3)}))
    controller = loaded(found, of=replace(settings(), min_insync_replicas=3))
    # The lower minimum clears the eligible replicas, in the same leader epoch.
    writes, effects = step(controller, MinimumRead({"t": 1}), relinquishes(topic_id("t")))
    [written] = state_writes(writes).values()
    assert (written.leader, written.leader_epoch, written.elr) == (1, 5, ())
    [refused] = results(effects)
    assert refused.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED
    assert refused.error_message == "the state of t-0 is being changed: ask again"
    writes, effects = step(controller, relinquishes(topic_id("t")))
    assert [one.error_code for one in results(effects)] == [ErrorCode.NONE]
    assert state_writes(writes)[TP].leader == 2
