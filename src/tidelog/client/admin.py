"""Admin calls for topics and partitions at the controller, and a wait for a topic's leaders.

A try has an unknown outcome when the connection broke or the broker timed out; the client repeats
the try. A repeated creation may find the topic that the earlier try created, and a repeated
deletion may find no topic. The client accepts the errors "exists already", "no such topic" and "has
that many partitions already" as success only after an unknown outcome. A topic that a repeated
creation finds must also have the requested number of partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidelog.client.cluster import TopicMetadata
from tidelog.client.retries import UNKNOWN_TOPIC, Patience
from tidelog.client.routing import ClusterRouter, expect
from tidelog.client.steps import Call, NotSent, Operation, Response, always
from tidelog.client.versions import error_code
from tidelog.core.errors import ConnectionLost, ErrorCode, KafkaError, RequestTimeout
from tidelog.core.types import NO_LEADER, TopicId
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog.wire.messages.remove_partitions import (
    RemovePartitionsRequest,
    RemovePartitionsResponse,
    RemovePartitionsTopic,
)
from tidelog.wire.registry import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, REMOVE_PARTITIONS

#: From this version on, DeleteTopics names topics in the field `topics`.
_DELETE_BY_STATE_VERSION = 6
#: Time in ms for which the client waits for a response beyond the broker's own timeout.
_ANSWER_MARGIN_MS = 2_000


class TopicAdmin:
    """Operations on topics."""

    def __init__(self, router: ClusterRouter) -> None:
        self._router = router

    def create(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        assignment: Mapping[int, Sequence[int]] | None = None,
    ) -> Operation[TopicId]:
        """Create a topic and return its id, which is all zeros if the broker sends no id.

        With -1, `partitions` and `replication_factor` are the cluster's defaults. `assignment`
        lists the replicas of each partition, preferred leader first, and replaces `partitions` and
        `replication_factor`. Raises KafkaError.
        """
        uncertain = _Uncertain()
        request = CreatableTopic(
            name,
            -1 if assignment else partitions,
            -1 if assignment else replication_factor,
            [
                CreatableReplicaAssignment(number, list(replicas))
                for number, replicas in sorted((assignment or {}).items())
            ],
            [CreatableTopicConfig(*each) for each in (configs or {}).items()],
        )

        def attempt(patience: Patience) -> Operation[TopicId]:
            timeout_ms = patience.remaining_ms
            build = always(CreateTopicsRequest(topics=[request], timeout_ms=timeout_ms))
            answer = yield from self._ask(CREATE_TOPICS, build, timeout_ms, uncertain, patience)
            result = _only(expect(answer, CreateTopicsResponse).topics, name)
            code = error_code(result.error_code)
            if code is ErrorCode.TOPIC_ALREADY_EXISTS and uncertain.tried:
                self._router.forget()
                topic = yield from self._router.topic(name, patience)
                asked = len(assignment) if assignment else partitions
                if asked < 0 or len(topic.partitions) == asked:
                    return topic.topic_id
            uncertain.note(code)
            if code is not ErrorCode.NONE:
                raise KafkaError(code, result.error_message or f"topic {name!r}")
            return bytes(result.topic_id)

        return self._router.repeat(f"creating topic {name!r}", attempt)

    def delete(self, name: str) -> Operation[None]:
        """Delete a topic. Raises KafkaError."""
        uncertain = _Uncertain()

        def attempt(patience: Patience) -> Operation[None]:
            timeout_ms = patience.remaining_ms
            build = _deletion(name, timeout_ms)
            answer = yield from self._ask(DELETE_TOPICS, build, timeout_ms, uncertain, patience)
            result = _only(expect(answer, DeleteTopicsResponse).responses, name)
            code = error_code(result.error_code)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                if uncertain.tried:
                    return
                patience.is_over = True  # the controller's response is final: it knows every topic
                raise KafkaError(code, f"there is no topic {name!r}")
            uncertain.note(code)
            if code is not ErrorCode.NONE:
                raise KafkaError(code, result.error_message or f"topic {name!r}")

        return self._router.repeat(f"deleting topic {name!r}", attempt)

    def add_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None = None
    ) -> Operation[None]:
        """Create partitions until the topic has `count` of them.

        `assignments` holds the replicas of each new partition; None lets the controller choose.
        Raises KafkaError.
        """
        uncertain = _Uncertain()
        request = CreatePartitionsTopic(name=name, count=count)
        if assignments is not None:
            request.assignments = [CreatePartitionsAssignment(list(each)) for each in assignments]

        def attempt(patience: Patience) -> Operation[None]:
            timeout_ms = patience.remaining_ms
            build = always(CreatePartitionsRequest(topics=[request], timeout_ms=timeout_ms))
            answer = yield from self._ask(CREATE_PARTITIONS, build, timeout_ms, uncertain, patience)
            result = _only(expect(answer, CreatePartitionsResponse).results, name)
            code = error_code(result.error_code)
            if code is ErrorCode.INVALID_PARTITIONS and uncertain.tried:
                self._router.forget()
                topic = yield from self._router.topic(name, patience)
                if len(topic.partitions) == count:
                    return
            uncertain.note(code)
            if code is not ErrorCode.NONE:
                raise KafkaError(code, result.error_message or f"topic {name!r}")

        return self._router.repeat(f"adding partitions to topic {name!r}", attempt)

    def remove_partitions(
        self, name: str, count: int, *, drain: bool = False, validate_only: bool = False
    ) -> Operation[None]:
        """Request the removal of the highest partitions of a topic; `count` partitions remain.

        With `drain`, a partition is removed after every consumer group has read it. The controller
        responds before the removal is complete. Raises KafkaError, with UNSUPPORTED_VERSION if the
        controller does not run tidelog.
        """
        uncertain = _Uncertain()
        wanted = RemovePartitionsTopic(name, count, drain)
        build = always(RemovePartitionsRequest([wanted], validate_only))

        def attempt(patience: Patience) -> Operation[None]:
            timeout_ms = patience.remaining_ms
            answer = yield from self._ask(REMOVE_PARTITIONS, build, timeout_ms, uncertain, patience)
            result = _only(expect(answer, RemovePartitionsResponse).results, name)
            code = error_code(result.error_code)
            if code is ErrorCode.INVALID_PARTITIONS and uncertain.tried:
                self._router.forget()
                topic = yield from self._router.topic(name, patience)
                if len(topic.partitions) == count:
                    return
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                patience.is_over = True  # the controller's response is final: it knows every topic
            if code is not ErrorCode.NONE:
                raise KafkaError(code, result.error_message or f"topic {name!r}")

        return self._router.repeat(f"removing partitions of topic {name!r}", attempt)

    def partition_counts(self, name: str) -> Operation[dict[int, int]]:
        """Return how many partitions of a topic each live broker knows."""

        def attempt(patience: Patience) -> Operation[dict[int, int]]:
            views = yield from self._views(name, patience)
            return {each: len(topic.partitions) if topic else 0 for each, topic in views.items()}

        return self._router.repeat(f"counting partitions of topic {name!r}", attempt)

    def live_on(self, name: str) -> Operation[list[int]]:
        """Return the live brokers that know a topic; after a deletion the list becomes empty."""

        def attempt(patience: Patience) -> Operation[list[int]]:
            views = yield from self._views(name, patience)
            return [
                broker_id
                for broker_id, topic in views.items()
                if topic is not None and topic.error not in UNKNOWN_TOPIC
            ]

        return self._router.repeat(f"looking for topic {name!r}", attempt)

    def _views(self, name: str, patience: Patience) -> Operation[dict[int, TopicMetadata | None]]:
        """Return a topic as each live broker knows it."""
        found = {}
        for node in (yield from self._router.all_brokers(patience)):
            metadata = yield from self._router.metadata_at(node, [name], patience)
            found[node.broker_id] = metadata.topics.get(name)
        return found

    def await_leaders(self, name: str, min_isr: int = 1) -> Operation[TopicMetadata]:
        """Wait until all partitions of a topic have live leaders and `min_isr` in-sync replicas."""

        def attempt(patience: Patience) -> Operation[TopicMetadata]:
            self._router.forget()
            topic = yield from self._router.topic(name, patience)
            for each in topic.partitions.values():
                if each.leader == NO_LEADER or len(each.isr) < min_isr:
                    raise KafkaError(
                        ErrorCode.LEADER_NOT_AVAILABLE,
                        f"partition {each.partition} has leader {each.leader} and in-sync"
                        f" replicas {list(each.isr)} of {list(each.replicas)}",
                    )
            return topic

        what = f"waiting for the leaders of topic {name!r}"
        return self._router.repeat(what, attempt)

    def _ask(
        self,
        api_key: int,
        build: Callable[[int], Any],
        timeout_ms: int,
        uncertain: _Uncertain,
        patience: Patience,
    ) -> Operation[Response]:
        controller = yield from self._router.controller(patience)
        call = Call(controller.address, api_key, build, timeout_ms + _ANSWER_MARGIN_MS)
        try:
            return (yield call)
        except NotSent:
            raise
        except (ConnectionLost, RequestTimeout):
            uncertain.tried = True
            raise


class _Uncertain:
    """Whether an earlier try of a request may have taken effect."""

    __slots__ = ("tried",)

    def __init__(self) -> None:
        self.tried = False

    def note(self, code: ErrorCode) -> None:
        if code is ErrorCode.REQUEST_TIMED_OUT:
            self.tried = True


def _deletion(name: str, timeout_ms: int) -> Callable[[int], Any]:
    def build(version: int) -> DeleteTopicsRequest:
        if version >= _DELETE_BY_STATE_VERSION:
            return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=timeout_ms)
        return DeleteTopicsRequest(topic_names=[name], timeout_ms=timeout_ms)

    return build


def _only(results: Sequence[Any], name: str) -> Any:
    for result in results:
        if result.name == name:
            return result
    raise KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller's answer does not mention topic {name!r}"
    )
