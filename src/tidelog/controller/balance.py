"""Which partitions should be led by their preferred replica again (V46).

A broker is out of balance when others lead more than a given share of the partitions that prefer
it. All of those go back then, as far as it is alive and in their ISR. Reads the image only.
"""

from __future__ import annotations

from tidelog.controller import elections
from tidelog.controller.image import Image
from tidelog.core.types import TopicPartition


def out_of_balance(image: Image, percentage: int) -> list[TopicPartition]:
    """Partitions to give back; `percentage` is leader.imbalance.per.broker.percentage."""
    preferring: dict[int, int] = {}
    elsewhere: dict[int, list[TopicPartition]] = {}
    for topic_partition in image.partitions():
        topic = image.topics[topic_partition.topic]
        state = image.states.get(topic_partition)
        if state is None or topic.is_reassigning or image.is_deleting(topic.name):
            continue
        replicas = image.replicas(topic_partition)
        preferred = replicas[0]
        preferring[preferred] = preferring.get(preferred, 0) + 1
        if elections.prefers_another(state, replicas):
            elsewhere.setdefault(preferred, []).append(topic_partition)
    return [
        topic_partition
        for broker_id, led_elsewhere in sorted(elsewhere.items())
        if broker_id in image.brokers
        and not image.brokers[broker_id].is_leaving
        and 100 * len(led_elsewhere) > percentage * preferring[broker_id]
        for topic_partition in led_elsewhere
        if broker_id in image.states[topic_partition].isr
    ]
