"""The bytes of records of `__transaction_state`: Kafka's own, and what readers skip or refuse."""

from __future__ import annotations

from random import Random

import pytest
from tests.support.draws import for_draws

from tidelog.broker.coordinators.transaction_records import decode, encode
from tidelog.core.errors import ProtocolError
from tidelog.core.types import TopicPartition
from tidelog.txn.records import Transaction, TransactionRecord, record_version
from tidelog.txn.states import TransactionPhase
from tidelog.wire.schema import SchemaError

NOW_MS = 1_700_000_000_000
KEY = bytes.fromhex("000000027431")
ONGOING = Transaction(
    producer_id=4000,
    producer_epoch=3,
    last_producer_epoch=-1,
    previous_producer_id=4000,
    next_producer_id=-1,
    timeout_ms=60_000,
    phase=TransactionPhase.ONGOING,
    partitions=frozenset({TopicPartition("in", 2), TopicPartition("in", 0)}),
    updated_ms=NOW_MS,
    started_ms=NOW_MS - 1000,
)
EMPTY = Transaction(4000, 0, -1, 4000, -1, 60_000, TransactionPhase.EMPTY, frozenset(), NOW_MS, -1)
#: As Kafka 4.3.1's own `TransactionLog` reads them.
KAFKAS = [
    (
        TransactionRecord("t1", ONGOING, 0),
        "00000000000000000fa000030000ea6001000000010002696e00000002000000000000000200000"
        "18bcfe568000000018bcfe56418",
    ),
    (
        TransactionRecord("t1", EMPTY, 0),
        "00000000000000000fa000000000ea6000ffffffff0000018bcfe56800ffffffffffffffff",
    ),
]


@pytest.mark.parametrize(("record", "value"), KAFKAS)
def test_version_0_has_kafkas_bytes(record: TransactionRecord, value: str) -> None:
    encoded = encode(record, NOW_MS)
    assert (encoded.key, encoded.value) == (KEY, bytes.fromhex(value))
    assert decode(encoded.key, encoded.value) == record


def test_version_1_has_kafkas_tags() -> None:
    value = bytes.fromhex(
        "00010000000000000fa000030000ea60010203696e030000000000000002000000018bcfe56800"
        "0000018bcfe564180200080000000000000fa002020002"
    )
    found = decode(KEY, value)
    assert found is not None and found.value is not None
    assert (found.version, found.value.client_version) == (1, 2)
    assert found.value.previous_producer_id == 4000
    assert encode(found, NOW_MS).value == value


def test_a_record_holds_each_state_in_its_version() -> None:
    def check(random: Random) -> None:
        state = Transaction(
            random.randrange(2**63),
            random.randrange(2**15),
            random.choice((-1, 5)),
            random.randrange(2**63),
            random.choice((-1, random.randrange(2**63))),
            random.randrange(2**31),
            TransactionPhase(random.randrange(1, 6)),
            frozenset(
                TopicPartition(random.choice(("a", "b", "ü")), random.randrange(50))
                for _ in range(random.randrange(9))
            ),
            random.randrange(2**62),
            random.choice((-1, random.randrange(2**62))),
            random.choice((0, 2)),
        )
        record = TransactionRecord("id", state, 1)
        encoded = encode(record, NOW_MS)
        assert decode(encoded.key, encoded.value) == record
        if record_version(state, 0) == 1:
            with pytest.raises(SchemaError):
                encode(TransactionRecord("id", state, 0), NOW_MS)

    for_draws(200, "transaction records", check)


def test_tombstones_and_later_versions() -> None:
    assert decode(KEY, None) == TransactionRecord("t1", None)
    tombstone = encode(TransactionRecord("t1", None, 0), NOW_MS)
    assert (tombstone.key, tombstone.value) == (KEY, None)
    assert decode(b"\x00\x01" + KEY[2:], None) is None, "a later kind of key"
    assert decode(KEY, b"\x00\x02anything") is None, "a later version of the value"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"\x00", None),
        (KEY + b"\x00", None),
        (KEY, b""),
        (KEY, bytes.fromhex(KAFKAS[0][1])[:-1]),
        (KEY, bytes.fromhex(KAFKAS[1][1].replace("ea6000", "ea6006"))),
        (KEY, bytes.fromhex(KAFKAS[1][1].replace("ea6000", "ea60ff"))),
    ],
)
def test_illegible_records_are_errors(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        decode(key, value)
