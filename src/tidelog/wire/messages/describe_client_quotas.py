"""DescribeClientQuotas (key 48), versions 0 and 1: quotas of clients (KIP-546).

Version 1 is flexible.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, float64, int8, int16, int32, string


@dataclass(slots=True)
class ComponentData:
    """A component of the filter of entities; `match_type`: 0 exact, 1 default, 2 any."""

    entity_type: str = string("0+")
    match_type: int = int8("0+")
    match: str | None = string("0+", nullable="0+")


@dataclass(slots=True)
class DescribeClientQuotasRequest:
    """The filter of entities; with `strict`, entities with more components do not match."""

    components: list[ComponentData] = array(ComponentData, "0+")
    strict: bool = boolean("0+")


@dataclass(slots=True)
class EntityData:
    """One component of a quota entity; a null name means the default entity."""

    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


@dataclass(slots=True)
class ValueData:
    """One quota of an entity."""

    key: str = string("0+")
    value: float = float64("0+")


@dataclass(slots=True)
class EntryData:
    """A quota entity and its quotas."""

    entity: list[EntityData] = array(EntityData, "0+")
    values: list[ValueData] = array(ValueData, "0+")


@dataclass(slots=True)
class DescribeClientQuotasResponse:
    """The quota entities that match the filter, or null with an error."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    entries: list[EntryData] | None = array(EntryData, "0+", nullable="0+")


API = Api(
    key=48,
    name="DescribeClientQuotas",
    request=DescribeClientQuotasRequest,
    response=DescribeClientQuotasResponse,
    min_version=0,
    max_version=1,
    first_flexible_version=1,
)
