"""AlterClientQuotas (key 49), versions 0 and 1: set and remove quotas (KIP-546).

Version 1 is flexible.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, float64, int16, int32, string


@dataclass(slots=True)
class EntityData:
    """One component of a quota entity; a null name means the default entity."""

    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


@dataclass(slots=True)
class OpData:
    """One quota to set or to remove."""

    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


@dataclass(slots=True)
class EntryData:
    """A quota entity and the changes of its quotas."""

    entity: list[EntityData] = array(EntityData, "0+")
    ops: list[OpData] = array(OpData, "0+")


@dataclass(slots=True)
class AlterClientQuotasRequest:
    """The request to change quotas; with `validate_only`, the broker only checks the request."""

    entries: list[EntryData] = array(EntryData, "0+")
    validate_only: bool = boolean("0+")


@dataclass(slots=True)
class EntryResult:
    """The outcome for one quota entity, named as in the request."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    entity: list[EntityData] = array(EntityData, "0+")


@dataclass(slots=True)
class AlterClientQuotasResponse:
    """The outcomes of quota changes, one per entity."""

    throttle_time_ms: int = int32("0+")
    entries: list[EntryResult] = array(EntryResult, "0+")


API = Api(
    key=49,
    name="AlterClientQuotas",
    request=AlterClientQuotasRequest,
    response=AlterClientQuotasResponse,
    min_version=0,
    max_version=1,
    first_flexible_version=1,
)
