"""Reads on a viewer's request: records of a partition, and the configuration of a resource.

A lookup has a client of its own and runs in a thread. A search for records ends after a maximum
number of records or of bytes, and returns the offset at which it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from tidelog.client.configs import BROKER, TOPIC, ConfigResource, ConfigValue
from tidelog.client.consuming import read_records
from tidelog.client.fetching import EARLIEST, LATEST
from tidelog.console.record_filters import RecordFilter
from tidelog.console.record_forms import shown_record
from tidelog.console.record_schemas import SchemaReader
from tidelog.console.views.tables import BadQuery, Document, TableQuery, number, text, window
from tidelog.core.config import BrokerConfig
from tidelog.core.config_keys import keys_of, to_text
from tidelog.core.dynamic_config import dynamic_keys
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.limits import MIB
from tidelog.core.topic_config import TopicConfig, broker_keys
from tidelog.core.types import TopicPartition
from tidelog.records.reader import Record
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.schema_registry import SchemaRegistry

#: Maximum number of records that one page shows; one search reads at most _SEARCH_BYTES.
_RECORDS: Final = 500
_SEARCH_BYTES: Final = 32 * MIB
_FETCH_BYTES: Final = 2 * MIB
#: Prefix of keys that only tests set; a configuration's page omits such a key if it is not set.
_OF_TESTS: Final = "tidelog.test."


def records_document(
    client: BlockingClient, params: Mapping[str, str], registry: SchemaRegistry | None = None
) -> Document:
    """Return records of a partition from an offset, a time, the start or the end on.

    In `params`, `from` is an offset, `earliest`, `latest` (the last records), or a time in ISO
    8601. The parameters `key`, `q` (words), `header` and `json` filter records. With `registry`,
    records in Confluent's wire format are decoded. Raises BadQuery.
    """
    wanted = RecordFilter.from_params(params)
    tp = TopicPartition(text(params, "topic"), number(params, "partition", 0))
    limit = number(params, "limit", 50)
    if not 1 <= limit <= _RECORDS:
        raise BadQuery(f"limit={limit}: a number from 1 to {_RECORDS} expected")
    metadata = client.metadata([tp.topic])
    topic = metadata.topics.get(tp.topic)
    numbers = [] if topic is None else list(topic.partitions)
    title = {"topic": tp.topic, "partition": tp.partition, "partitions": numbers}
    if tp.partition not in numbers:
        return {**title, "missing": f"There is no partition {tp} in this cluster now."}
    low = client.list_offsets({tp: EARLIEST})[tp].offset
    high = client.list_offsets({tp: LATEST})[tp].offset
    start = min(max(_start(client, tp, params, limit, high), low), high)
    found, end = _search(client, tp, (start, high), wanted, limit)
    schemas = SchemaReader(registry)
    return {
        **title,
        "low": low,
        "high": high,
        "start": start,
        "next": end,
        "is_ended": end >= high,
        "limit": limit,
        "records": [shown_record(each, schemas) for each in found],
    }


def _start(
    client: BlockingClient, tp: TopicPartition, params: Mapping[str, str], limit: int, high: int
) -> int:
    where = params.get("from", "latest").strip() or "latest"
    if where == "earliest":
        return 0
    if where == "latest":
        return high - limit
    try:
        return int(where)
    except ValueError:  # not an offset, so a time
        return client.positions({tp: moment_ms("from", where)})[tp]


def moment_ms(name: str, where: str) -> int:
    """Return a time in ISO 8601 as ms since 1970; a time without a time zone is in UTC.

    Raises BadQuery, which names the parameter.
    """
    try:
        at = datetime.fromisoformat(where)
    except ValueError:
        raise BadQuery(
            f"{name}={where!r}: an offset, earliest, latest, or a time as 2026-01-31T12:00 expected"
        ) from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max(0, int(at.timestamp() * 1000))


def _search(
    client: BlockingClient,
    tp: TopicPartition,
    offsets: tuple[int, int],
    wanted: RecordFilter,
    limit: int,
) -> tuple[list[Record], int]:
    """Return the matching records between offsets, and the offset at which the search ended."""
    found: list[Record] = []
    (position, high), left_bytes = offsets, _SEARCH_BYTES
    while position < high and left_bytes > 0:
        try:
            fetched = client.fetch(tp, position, _FETCH_BYTES, max_wait_ms=0)
        except KafkaError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:  # the records have just been deleted
                break
            raise
        records, end = read_records(fetched.records, position)
        for record in records:
            if wanted.accepts(record):
                found.append(record)
                if len(found) >= limit:
                    return found, record.offset + 1
        left_bytes -= max(1, len(fetched.records))
        if end <= position:
            break
        position = end
    return found, position


def configuration_document(
    client: BlockingClient, params: Mapping[str, str], _registry: SchemaRegistry | None = None
) -> Document:
    """Return the configuration of a topic, a broker or all brokers, with each key's meaning."""
    resource = _resource(params)
    values = client.describe_configs(resource, with_synonyms=True)
    is_topic = resource.type == TOPIC
    rows = [_value(each, is_topic) for each in values]
    rows = [row for row in rows if not row["name"].startswith(_OF_TESTS) or not row["is_default"]]
    if params.get("changed") == "1":
        rows = [row for row in rows if not row["is_default"]]
    brokers = sorted(client.metadata([]).brokers)
    return {
        "of": params.get("of", "broker"),
        "name": resource.name,
        "brokers": brokers,
        "table": window(rows, TableQuery.from_params({"limit": "2000", **params}, "name")),
    }


def _resource(params: Mapping[str, str]) -> ConfigResource:
    kind = params.get("of", "broker")
    if kind == "topic":
        return ConfigResource(TOPIC, text(params, "name"))
    if kind == "broker":
        return ConfigResource(BROKER, str(number(params, "name")))
    raise BadQuery(f"of={kind!r}: topic or broker expected")


def _value(value: ConfigValue, is_topic: bool) -> Document:
    declared = keys_of(TopicConfig if is_topic else BrokerConfig).get(value.name)
    default = next((each.value for each in value.synonyms if each.source == "DEFAULT_CONFIG"), None)
    if default is None and declared is not None:
        default = to_text(declared[2])
    return {
        "name": value.name,
        "value": value.value,
        "is_sensitive": value.sensitive,
        "source": value.source.lower().removesuffix("_config").replace("_", " "),
        "is_default": value.is_default,
        "default": default,
        "meaning": "" if declared is None else declared[1].documentation,
        "effect": _effect(value, is_topic),
        "synonyms": [
            f"{each.name}={each.value} ({each.source.lower().replace('_', ' ')})"
            for each in value.synonyms[1:]
        ],
    }


def _effect(value: ConfigValue, is_topic: bool) -> str:
    """Return the effect of a change of the key, and whether it needs a restart."""
    if is_topic:
        inherited = broker_keys().get(value.name)
        note = f"; without a value, the topic has the broker's {inherited}" if inherited else ""
        return f"A change acts at once on all replicas{note}."
    if value.read_only:
        return "Read-only: a change needs the broker's file and a restart."
    if value.name in dynamic_keys():
        return "A change acts while the broker runs, without a restart."
    return "A change is stored; the broker's log says what it does."


Lookup = Callable[[BlockingClient, Mapping[str, str], SchemaRegistry | None], Document]
#: The lookup functions, by the name of the page that shows the result.
LOOKUPS: Final[Mapping[str, Lookup]] = {
    "records": records_document,
    "configuration": configuration_document,
}
