"""Responses to requests that fail as a whole, derived from the declared message fields.

A response whose version has its own `error_code` carries the error there. A response without its
own `error_code` carries the error in an entry for each part of the request. The parts of a request
are the elements of its first array. If the response's entries hold arrays themselves, each element
of the request's array has parts of its own, in the same way. Kafka's `getErrorResponse` methods
fill the same fields of a response as this module.

If the derived error responses do not suit an API, its module defines its own `error_response`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import takewhile
from typing import Any, Final

from tidelog.broker.server.requests import Request
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode
from tidelog.wire import registry
from tidelog.wire.messages.create_delegation_token import CreateDelegationTokenResponse
from tidelog.wire.messages.delete_records import DeleteRecordsPartitionResult
from tidelog.wire.messages.describe_client_quotas import DescribeClientQuotasResponse
from tidelog.wire.messages.expire_delegation_token import ExpireDelegationTokenResponse
from tidelog.wire.messages.fetch import PartitionData
from tidelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from tidelog.wire.messages.get_replica_log_info import PartitionLogInfo
from tidelog.wire.messages.offset_fetch import OffsetFetchResponsePartition
from tidelog.wire.messages.produce import PartitionProduceResponse
from tidelog.wire.messages.renew_delegation_token import RenewDelegationTokenResponse
from tidelog.wire.registry import API
from tidelog.wire.schema import NamedField, fields_of

#: APIs whose error responses carry the error in each entry and also in the response's own field, as
#: in Kafka.
_ENTRIES_TOO: Final = {registry.FETCH, registry.ELECT_LEADERS}
_ERRORS: Final = ("error_code", "partition_error_code")
_MESSAGE: Final = "error_message"
#: Schema kinds of primitive values in request arrays, by Python type: `int` stands for `int32`.
_PRIMITIVES: Final[dict[type, str]] = {str: "string", int: "int32"}
#: Values of other fields of an error response that differ from the fields' defaults.
_VALUES: Final[dict[type, dict[str, Any]]] = {
    PartitionProduceResponse: {"base_offset": -1},
    PartitionData: {"high_watermark": -1, "records": b""},
    DeleteRecordsPartitionResult: {"low_watermark": -1},
    FindCoordinatorResponse: {"node_id": -1, "port": -1},
    Coordinator: {"node_id": -1, "port": -1},
    OffsetFetchResponsePartition: {"committed_offset": -1},
    PartitionLogInfo: {
        "last_written_leader_epoch": -1,
        "current_leader_epoch": -1,
        "log_end_offset": -1,
    },
    DescribeClientQuotasResponse: {"entries": None},
    CreateDelegationTokenResponse: {
        "principal_type": "User",
        "principal_name": "ANONYMOUS",
        "token_requester_principal_type": "User",
        "token_requester_principal_name": "ANONYMOUS",
        "issue_timestamp_ms": -1,
        "expiry_timestamp_ms": -1,
        "max_timestamp_ms": -1,
    },
    RenewDelegationTokenResponse: {"expiry_timestamp_ms": -1},
    ExpireDelegationTokenResponse: {"expiry_timestamp_ms": -1},
}


def error_response(request: Request[Any], error: ErrorCode, message: str | None = None) -> Any:
    """Return a response that carries `error`, and `message` if it has a field for it."""
    api, version = API[request.header.api_key], request.header.api_version
    shape = _shape(api.response, version)
    entries = {}
    if shape.entries is not None and (shape.error is None or api.key in _ENTRIES_TOO):
        parts = _parts(request.message, version)
        entries[shape.entries.name] = error_entries(request, parts, error, message)
    return shape.struct(error, message, entries)


def error_entries(
    request: Request[Any], parts: Sequence[Any], error: ErrorCode, message: str | None = None
) -> list[Any]:
    """Return the response's entries for these parts of a request, each with `error`."""
    api, version = API[request.header.api_key], request.header.api_version
    entries = _shape(api.response, version).entries
    assert entries is not None, f"responses of {api.name} have no error for each part"
    return _entries(entries, version, parts, error, message)


@dataclass(frozen=True, slots=True)
class _Shape:
    """Where a struct of a response carries an error, at one version.

    An error may stand in the struct's error field and message field, or in the elements of an
    array.
    """

    struct_class: type
    error: str | None
    message: str | None
    #: The first array whose elements can hold an error.
    entries: NamedField | None
    #: Values of the struct's other fields in an error response.
    values: dict[str, Any]

    def struct(self, error: ErrorCode, message: str | None, others: dict[str, Any]) -> Any:
        """Return a struct with the error in its error field, and `others` in its other fields."""
        values = others | self.values
        if self.error is not None:
            values[self.error] = error
            if self.message is not None:
                values[self.message] = message
        return self.struct_class(**values)


@cache
def _shape(struct_class: type, version: int) -> _Shape:
    present = {each.name: each for each in fields_of(struct_class) if version in each.spec.versions}
    values = _VALUES.get(struct_class, {})
    return _Shape(
        struct_class,
        error=next((name for name in _ERRORS if name in present), None),
        message=_MESSAGE if _MESSAGE in present else None,
        entries=next((each for each in present.values() if _has_errors(each, version)), None),
        values={name: value for name, value in values.items() if name in present},
    )


def _has_errors(field: NamedField, version: int) -> bool:
    """Whether the elements of a field can hold an error."""
    if field.spec.kind != "array" or not isinstance(field.spec.element, type):
        return False
    shape = _shape(field.spec.element, version)
    return shape.error is not None or shape.entries is not None


def _entries(
    field: NamedField,
    version: int,
    parts: Sequence[Any],
    error: ErrorCode,
    message: str | None,
) -> list[Any]:
    """Return the entries of a response's array: an error for each part of the request."""
    assert isinstance(field.spec.element, type)
    shape = _shape(field.spec.element, version)
    entries = []
    for part in parts:
        values = {
            name: part if source is None else getattr(part, source)
            for name, source in _names(shape.struct_class, part.__class__)
        }
        if shape.error is None and shape.entries is not None:
            inner = _parts(part, version)
            values[shape.entries.name] = _entries(shape.entries, version, inner, error, message)
        entries.append(shape.struct(error, message, values))
    return entries


def _parts(asked: Any, version: int) -> Sequence[Any]:
    """Return the elements of the first array in a struct of a request."""
    arrays = (
        each.name
        for each in fields_of(type(asked))
        if each.spec.kind == "array" and version in each.spec.versions
    )
    return getattr(asked, next(arrays)) or ()


@cache
def _names(entry_class: type, part_class: type) -> tuple[tuple[str, str | None], ...]:
    """Return pairs of names: a field of a response's entry, and the request's field that fills it.

    If the array in the request has plain values, not structs, the second name of each pair is None.

    The first field of each part of the request is repeated in the response's entry, perhaps under
    another name. A response's entry also repeats every later string or id of the request's part, if
    the entry has a field of the same name.
    """
    free = {
        each.name: each.spec.kind
        for each in fields_of(entry_class)
        if each.name not in (*_ERRORS, _MESSAGE)
    }
    if part_class in _PRIMITIVES:
        kind = _PRIMITIVES[part_class]
        return ((next(name for name in free if free[name] == kind), None),)
    first, *others = fields_of(part_class)
    alike = (name for name, kind in free.items() if kind == first.spec.kind)
    name = first.name if first.name in free else next(alike, None)
    if name is None:
        return ()
    shared = takewhile(lambda each: free.get(each.name) in ("string", "uuid"), others)
    return ((name, first.name), *((each.name, each.name) for each in shared))
