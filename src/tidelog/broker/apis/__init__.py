"""One module per API key, named as in `wire/messages`; each opens with its card.

The registry of what a broker serves: ApiVersions and the dispatch of requests are derived from the
cards, so that an API is served exactly as its card says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.requests import Card, Request

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker


Handler = Callable[["Broker", Request], Any]


class Served(NamedTuple):
    """A card and its handler."""

    card: Card
    handle: Handler


def handlers() -> dict[int, Served]:
    """Every API served, by key, in ascending order."""
    from tidelog.broker.apis import (
        allocate_producer_ids,
        alter_configs,
        alter_partition,
        api_versions,
        create_partitions,
        create_topics,
        delete_groups,
        delete_records,
        delete_topics,
        describe_cluster,
        describe_configs,
        describe_groups,
        describe_log_dirs,
        describe_topic_partitions,
        elect_leaders,
        fetch,
        find_coordinator,
        heartbeat,
        incremental_alter_configs,
        init_producer_id,
        join_group,
        leader_and_isr,
        leave_group,
        list_groups,
        list_offsets,
        metadata,
        offset_commit,
        offset_delete,
        offset_fetch,
        offset_for_leader_epoch,
        produce,
        stop_replica,
        sync_group,
        update_metadata,
    )

    modules: tuple[Any, ...] = (
        allocate_producer_ids,
        alter_configs,
        alter_partition,
        api_versions,
        create_partitions,
        create_topics,
        delete_groups,
        delete_records,
        delete_topics,
        describe_cluster,
        describe_configs,
        describe_groups,
        describe_log_dirs,
        describe_topic_partitions,
        elect_leaders,
        fetch,
        find_coordinator,
        heartbeat,
        incremental_alter_configs,
        init_producer_id,
        join_group,
        leader_and_isr,
        leave_group,
        list_groups,
        list_offsets,
        metadata,
        offset_commit,
        offset_delete,
        offset_fetch,
        offset_for_leader_epoch,
        produce,
        stop_replica,
        sync_group,
        update_metadata,
    )
    served = {module.CARD.api_key: Served(module.CARD, module.handle) for module in modules}
    return dict(sorted(served.items()))
