"""Our declarations are those of Kafka's definitions, which kafka-python brings along.

The bytes alone do not tell which default an absent field has, nor whether a version that lacks it
may leave it out. kafka-python's definitions are Kafka 4's: APIs between brokers are not among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.schemas import load_json
from tests.support.wire import VERSIONED
from tests.wire_oracles import kafka_python_oracle

from tidelog.wire import schema
from tidelog.wire.data.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.wire.registry import API, FIRST_OWN_KEY
from tidelog.wire.schema import FIXED_FORMATS, FieldSpec, Versions

TOPS = [
    *((api.request, api.min_version, api.max_version) for api in API.values()),
    *((api.response, api.min_version, api.max_version) for api in API.values()),
    *((each.struct_class, each.min_version, each.max_version) for each in VERSIONED),
]
DEFINED = [top for top in TOPS if kafka_python_oracle.message_class(top[0].__name__)]
DEFINED_CLASSES = {top[0] for top in DEFINED}
RECORDS = (OffsetCommitKey, OffsetCommitValue, GroupMetadataKey, GroupMetadataValue)

#: Ignorable only since topic ids stand beside them, at versions that we do not speak.
NOT_YET_IGNORABLE = {
    "TopicProduceData.name",
    "TopicProduceResponse.name",
    "OffsetCommitRequestTopic.name",
    "OffsetCommitResponseTopic.name",
    "OffsetFetchRequestTopics.name",
    "OffsetFetchResponseTopics.name",
}

#: The message of an answer without an error. Some definitions give an empty string, which Kafka's
#: handlers replace by null: clients show a message that is there, also an empty one.
NO_ERROR_MESSAGE = None

API_BY_NAME = {api.name: api for api in API.values()}
#: APIs of clients whose definitions kafka-python does not bring along.
WITHOUT_DEFINITION = (
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "DescribeDelegationToken",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
)
#: Ours to Kafka's, where Kafka has two structs of one name.
RENAMED = {"EntryResult": "EntryData"}

NAMED_DEFAULTS = {"null": None, "true": True, "false": False}
EMPTY = {
    "float64": 0.0,
    "array": (),
    "string": "",
    "bool": False,
    "bytes": b"",
    "uuid": bytes(16),
    "records": None,
}


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def default_of(definition: dict[str, Any], kind: str) -> object:
    """The default that a definition gives, as we write it."""
    if "default" not in definition:
        return EMPTY.get(kind, 0)
    given = definition["default"]
    if isinstance(given, str):
        given = NAMED_DEFAULTS.get(given, given)
    return int(given, 0) if kind.startswith("int") and isinstance(given, str) else given


def differences(
    struct_class: type, fields: list[dict[str, Any]], common: dict[str, Any], spoken: list[int]
) -> Iterator[str]:
    """What a struct and those inside declare otherwise than `fields` define it.

    Tagged fields of tidelog's own have no definition.
    """
    ours = [
        field
        for field in schema.fields_of(struct_class)
        if field.spec.tag is None or field.spec.tag < FIRST_OWN_KEY
    ]
    theirs = [each for each in fields if any(v in Versions.parse(each["versions"]) for v in spoken)]
    if [each.name for each in ours] != [snake(each["name"]) for each in theirs]:
        yield f"{struct_class.__name__} has the fields {[snake(each['name']) for each in theirs]}"
        return
    for field, definition in zip(ours, theirs, strict=True):
        what = f"{struct_class.__name__}.{field.name}"
        expected = default_of(definition, field.spec.kind)
        if definition["name"] == "ErrorMessage":
            expected = NO_ERROR_MESSAGE
        if field.spec.kind != "struct" and field.spec.default != expected:
            yield f"{what}: default {expected!r}"
        yield from (f"{what}: {each}" for each in field_differences(field.spec, definition, spoken))
        ignorable = definition.get("ignorable", False) and what not in NOT_YET_IGNORABLE
        if field.spec.ignorable != ignorable:
            yield f"{what}: ignorable {ignorable}"
        if isinstance(field.spec.element, type):
            name = definition["type"].removeprefix("[]")
            inner = definition.get("fields") or common[name]["fields"]
            there = [version for version in spoken if version in field.spec.versions]
            yield from differences(field.spec.element, inner, common, there)


def field_differences(
    spec: FieldSpec, definition: dict[str, Any], spoken: list[int]
) -> Iterator[str]:
    """What one field declares otherwise than its definition."""
    base = definition["type"].removeprefix("[]")
    kind = "array" if base != definition["type"] else base
    if kind != "array" and kind not in (*FIXED_FORMATS, "string", "bytes", "records"):
        kind = "struct"
    if spec.kind != kind:
        yield f"a {kind}"
    if spec.tag != definition.get("tag"):
        yield f"tag {definition.get('tag')}"
    element = spec.element.__name__ if isinstance(spec.element, type) else spec.element
    element = RENAMED.get(str(element), element)
    if element is not None and kind != "struct" and element != base:
        yield f"of {base}"
    present, nullable = (
        Versions.parse(definition.get(key, "none")) for key in ("versions", "nullableVersions")
    )
    for version in spoken:
        if (version in spec.versions) != (version in present):
            yield f"at versions {definition['versions']}"
        elif version in present and (version in spec.nullable) != (version in nullable):
            yield f"nullable at versions {definition.get('nullableVersions')}"


@pytest.mark.parametrize(
    ("struct_class", "first", "last"), DEFINED, ids=[top[0].__name__ for top in DEFINED]
)
def test_the_declaration_is_the_definition(struct_class: type, first: int, last: int) -> None:
    definition = load_json(struct_class.__name__)
    common = {each["name"]: each for each in definition.get("commonStructs", [])}
    spoken = list(range(first, last + 1))
    found = list(differences(struct_class, definition["fields"], common, spoken))
    assert not found


@pytest.mark.parametrize(
    "api", [api for api in API.values() if api.request in DEFINED_CLASSES], ids=lambda api: api.name
)
def test_the_key_and_the_first_flexible_version_are_the_definitions(api: schema.Api) -> None:
    definition = load_json(api.request.__name__)
    assert definition["apiKey"] == api.key
    flexible = Versions.parse(definition["flexibleVersions"])
    for version in range(api.min_version, api.max_version + 1):
        assert api.is_flexible(version) == (version in flexible)


def test_what_has_no_definition_is_spoken_between_brokers_or_kept_by_them() -> None:
    undefined = {top[0] for top in TOPS} - DEFINED_CLASSES
    between_brokers = {
        message
        for api in API.values()
        for message in (api.request, api.response)
        if api.inter_broker or api.key >= FIRST_OWN_KEY
    }
    others = {
        message
        for name in WITHOUT_DEFINITION
        for message in (API_BY_NAME[name].request, API_BY_NAME[name].response)
    }
    assert undefined - between_brokers == {*RECORDS, *others}
