"""ListTransactions (key 66), versions 0 and 1: transactions of a coordinator (KIP-664).

Version 1 filters transactions by the time for which they have been open (KIP-994).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int16, int32, int64, string


@dataclass(slots=True)
class ListTransactionsRequest:
    """The filters of the transactions to list; an empty filter matches all."""

    state_filters: Sequence[str] = array("string", "0+")
    producer_id_filters: Sequence[int] = array("int64", "0+")
    duration_filter: int = int64("1+", -1)


@dataclass(slots=True)
class TransactionState:
    """One listed transaction."""

    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    transaction_state: str = string("0+")


@dataclass(slots=True)
class ListTransactionsResponse:
    """The transactions that match, and the unknown state names of the filter."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    unknown_state_filters: Sequence[str] = array("string", "0+")
    transaction_states: list[TransactionState] = array(TransactionState, "0+")


API = Api(
    key=66,
    name="ListTransactions",
    request=ListTransactionsRequest,
    response=ListTransactionsResponse,
    min_version=0,
    max_version=1,
    first_flexible_version=0,
)
