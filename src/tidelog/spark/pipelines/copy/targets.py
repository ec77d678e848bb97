"""The topics of a copy: checks in both clusters, and creation in the target.

A target topic must be new, empty, or known to the directory of the copy. A target topic has as many
partitions as the source topic, so that keys keep their partitions. A new target topic gets the
configs that were set on the source topic. If the source uses LogAppendTime, the target uses
CreateTime, so that it does not replace the timestamps of records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from tidelog.client.cluster import ClusterMetadata, TopicMetadata
from tidelog.client.configs import TOPIC, ConfigResource
from tidelog.client.fetching import LATEST
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.copy.ledger import About, CopiedTopic
from tidelog.spark.pipelines.copy.transfer import CopyError

_SET_ON_TOPIC: Final = "DYNAMIC_TOPIC_CONFIG"
#: Configs with broker ids of the source, which mean nothing in the target.
_BROKERS_OF_SOURCE: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
_TIMESTAMP_TYPE: Final = "message.timestamp.type"


def check_names(names: Mapping[str, str], *, is_same_cluster: bool) -> None:
    """Raise CopyError if two topics have the same target, or a topic would be its own target."""
    if not names:
        raise CopyError("no topic is named: --topic NAME, or --topic SOURCE:TARGET")
    targets: dict[str, str] = {}
    for source, target in names.items():
        if target in targets:
            raise CopyError(
                f"topics {targets[target]!r} and {source!r} would both be copied into {target!r};"
                " each needs a target of its own"
            )
        targets[target] = source
    if not is_same_cluster:
        return
    for source in names:
        if source in targets:
            raise CopyError(
                f"source and target are the same cluster, where topic {source!r} would be copied"
                f" into itself or be a target, too; name another target: --topic {source}:NAME"
            )


def source_topics(
    client: BlockingClient, names: Collection[str], address: str
) -> dict[str, TopicMetadata]:
    """Return the source topics. Raises CopyError for an unknown or internal topic."""
    metadata = client.metadata(list(names))
    found = {}
    for name in names:
        topic = _topic(metadata, name)
        if topic is None:
            raise CopyError(f"there is no topic {name!r} in the source {address}")
        if topic.is_internal or name.startswith("__"):
            raise CopyError(
                f"topic {name!r} is internal: its records are about its own cluster. Offsets of"
                " groups are translated with --group"
            )
        found[name] = topic
    return found


def configs_of(client: BlockingClient, topic: str) -> dict[str, str]:
    """Return the configuration that was set on a topic."""
    return {
        each.name: each.value
        for each in client.describe_configs(ConfigResource(TOPIC, topic))
        if each.source == _SET_ON_TOPIC and each.value is not None
    }


def target_configs(configs: Mapping[str, str], left_out: Collection[str]) -> dict[str, str]:
    """Return the configuration of a new target topic: the source's, without `left_out`."""
    kept = {
        name: value
        for name, value in configs.items()
        if name not in left_out and name not in _BROKERS_OF_SOURCE
    }
    if kept.get(_TIMESTAMP_TYPE) == "LogAppendTime":
        kept[_TIMESTAMP_TYPE] = "CreateTime"
    return kept


class TargetTopics:
    """The target topics of a copy, which are checked or created."""

    def __init__(
        self,
        source: BlockingClient,
        target: BlockingClient,
        *,
        replication_factor: int | None,
        left_out: Collection[str],
    ) -> None:
        self._source = source
        self._target = target
        self._replication_factor = replication_factor
        self._left_out = left_out
        #: Topics that this run created.
        self.created: list[str] = []

    def prepare(self, source: TopicMetadata, name: str, about: About) -> CopiedTopic:
        """Return a source topic with its target; create the target, or check it.

        Raises CopyError.
        """
        known = about.topics.get(source.name)
        source_id = source.topic_id.hex()
        found = _topic(self._target.metadata([name]), name)
        if known is not None:
            self._check_known(known, source_id, found, name)
        if found is None:
            found = self._create(source, name)
        elif known is None:
            self._check_empty(found)
        if len(found.partitions) < len(source.partitions) and known is not None:
            self._target.add_partitions(name, len(source.partitions))
            found = self._target.await_topic(name)
        if len(found.partitions) != len(source.partitions):
            raise CopyError(
                f"topic {name!r} of the target has {len(found.partitions)} partitions, the source"
                f" {source.name!r} {len(source.partitions)}: keys would change their partitions."
                " Name another target: --topic SOURCE:TARGET"
            )
        return CopiedTopic(source.name, source_id, name, found.topic_id.hex())

    def _check_known(
        self, known: CopiedTopic, source_id: str, found: TopicMetadata | None, name: str
    ) -> None:
        renamed = known.target != name
        if renamed:
            raise CopyError(
                f"this directory copies {known.source!r} into {known.target!r}, not into {name!r};"
                " use another directory for another target"
            )
        if known.source_id != source_id:
            raise CopyError(
                f"topic {known.source!r} of the source was recreated since the last copy: its"
                " offsets mean other records. Copy it into a new topic, with a new directory"
            )
        if found is None or found.topic_id.hex() != known.target_id:
            state = "is gone" if found is None else "was recreated"
            raise CopyError(
                f"topic {name!r} of the target {state} since the last copy: the offset table is"
                " about the former one. Copy into a new topic, with a new directory"
            )

    def _check_empty(self, found: TopicMetadata) -> None:
        partitions = [TopicPartition(found.name, number) for number in found.partitions]
        for tp, listed in self._target.list_offsets(dict.fromkeys(partitions, LATEST)).items():
            if listed.offset:
                raise CopyError(
                    f"{tp} of the target is not empty (it ends at offset {listed.offset}), and"
                    " this directory has not copied it. A copy needs a new or empty topic; to go"
                    " on with a former copy, use its directory"
                )

    def _create(self, source: TopicMetadata, name: str) -> TopicMetadata:
        factor = self._replication_factor
        if factor is None:
            factor = max((len(each.replicas) for each in source.partitions.values()), default=1)
        brokers = len(self._target.metadata([]).brokers)
        if factor > brokers:
            raise CopyError(
                f"topic {name!r} would need {factor} replicas, and the target has {brokers}"
                f" brokers; --replication-factor {brokers} creates it with fewer"
            )
        configs = target_configs(configs_of(self._source, source.name), self._left_out)
        try:
            self._target.create_topic(name, len(source.partitions), factor, configs)
            found = self._target.await_topic(name)
        except KafkaError as error:
            hint = ""
            if error.code is ErrorCode.INVALID_CONFIG:
                hint = "; --without-config KEY leaves a config of the source out"
            raise CopyError(f"creating topic {name!r} in the target: {error}{hint}") from error
        self.created.append(name)
        return found


def _topic(metadata: ClusterMetadata, name: str) -> TopicMetadata | None:
    topic = metadata.topics.get(name)
    if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    if topic.error is not ErrorCode.NONE:
        raise CopyError(f"topic {name!r} cannot be looked up: {topic.error.name}")
    return topic
