"""The pages by name, and the documents of pages, which name the parts that could not be read.

Every page names the parts of a reading from which it is built. If a part could not be read, the
document has the reason as a sentence, and still shows the other parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tidelog.console.readings import ClusterReading, ReadingPart, Samples
from tidelog.console.views.cluster import cluster_view
from tidelog.console.views.disks import disks_view
from tidelog.console.views.events import events_view
from tidelog.console.views.failovers import failovers_view
from tidelog.console.views.groups import group_view, groups_view
from tidelog.console.views.history import broker_view
from tidelog.console.views.moves import moves_view
from tidelog.console.views.partition import partition_view, viewed_partition
from tidelog.console.views.tables import Document, text
from tidelog.console.views.topics import topic_view, topics_view
from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition

View = Callable[[ClusterReading, Samples, Mapping[str, str]], Document]


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its view, and the parts of a reading that it shows."""

    view: View
    parts: tuple[ReadingPart, ...]


PAGES: Final[Mapping[str, Page]] = {
    "cluster": Page(
        cluster_view,
        (
            ReadingPart.CLUSTER,
            ReadingPart.DISKS,
            ReadingPart.MOVES,
            ReadingPart.EVENTS,
            ReadingPart.HISTORY,
        ),
    ),
    "broker": Page(broker_view, (ReadingPart.CLUSTER, ReadingPart.HISTORY)),
    "topics": Page(
        topics_view,
        (ReadingPart.CLUSTER, ReadingPart.OFFSETS, ReadingPart.GROUPS, ReadingPart.DISKS),
    ),
    "topic": Page(
        topic_view,
        (
            ReadingPart.CLUSTER,
            ReadingPart.OFFSETS,
            ReadingPart.GROUPS,
            ReadingPart.DISKS,
            ReadingPart.MOVES,
            ReadingPart.TOPIC_DAYS,
        ),
    ),
    "partition": Page(
        partition_view,
        (ReadingPart.CLUSTER, ReadingPart.OFFSETS, ReadingPart.REPLICAS, ReadingPart.EVENTS),
    ),
    "groups": Page(groups_view, (ReadingPart.CLUSTER, ReadingPart.GROUPS, ReadingPart.OFFSETS)),
    "group": Page(group_view, (ReadingPart.CLUSTER, ReadingPart.GROUPS, ReadingPart.OFFSETS)),
    "moves": Page(moves_view, (ReadingPart.CLUSTER, ReadingPart.MOVES)),
    "disks": Page(disks_view, (ReadingPart.CLUSTER, ReadingPart.DISKS)),
    "events": Page(events_view, (ReadingPart.CLUSTER, ReadingPart.EVENTS)),
    "failovers": Page(failovers_view, (ReadingPart.CLUSTER, ReadingPart.EVENTS)),
}


def page_document(
    name: str, reading: ClusterReading, samples: Samples, params: Mapping[str, str]
) -> Document:
    """Return the document of the page `name`, which must exist. Raises BadQuery."""
    page = PAGES[name]
    return {
        "page": name,
        "reading": reading.number,
        "time_ms": reading.time_ms,
        "has_metadata": reading.metadata is not None,
        "notes": [
            {"part": part, "text": reading.problems[part], "read_ms": reading.read_ms.get(part)}
            for part in page.parts
            if part in reading.problems
        ],
        **page.view(reading, samples, params),
    }


def viewed_partitions(
    name: str, reading: ClusterReading, params: Mapping[str, str]
) -> list[TopicPartition]:
    """Return the partitions whose replicas a page shows. Raises BadQuery."""
    if name == "partition":
        return [viewed_partition(params)]
    if name == "topic" and reading.metadata is not None:
        topic = reading.metadata.topics.get(text(params, "name"))
        return [] if topic is None else [TopicPartition(topic.name, n) for n in topic.partitions]
    return []
