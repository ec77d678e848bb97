"""Structs behind their version: their bytes, what of them is read, and what is refused."""

from __future__ import annotations

import tracemalloc
from random import Random
from typing import Any

import pytest
from tests.support.draws import for_draws
from tests.support.wire import VERSIONED, DataCase, data_cases
from tests.unit.wire.test_wire_totality import HOSTILE_BODIES

from tidelog.core.errors import ProtocolError
from tidelog.wire.data.consumer_offsets import (
    GROUP_METADATA_KEY,
    GROUP_METADATA_VALUE,
    OFFSET_COMMIT_KEY,
    OFFSET_COMMIT_VALUE,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    encode_group_metadata_value,
    encode_key,
    encode_offset_commit_value,
)
from tidelog.wire.data.consumer_protocol import (
    ASSIGNMENT,
    SUBSCRIPTION,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tidelog.wire.schema import SchemaError
from tidelog.wire.versioned import UnknownVersion, Versioned

CASES = data_cases()
RECORDS = [OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE, GROUP_METADATA_KEY, GROUP_METADATA_VALUE]

COMMITTED = OffsetCommitValue(258, 7, "mé", 1_700_000_000_000)
MEMBER = MemberMetadata("m-1", "rack-7", "app", "/127.0.0.1", 300_000, 45_000, b"\1\2", b"\3")
STABLE = GroupMetadataValue("consumer", 5, "range", "m-1", 1_700_000_000_000, [MEMBER])

#: The bytes of each version, written out after the definitions of Kafka's messages.
GOLDEN: list[tuple[Versioned[Any], int, Any, str]] = [
    (OFFSET_COMMIT_KEY, 0, OffsetCommitKey("grp", "t", 2), "0000 0003 677270 0001 74 00000002"),
    (OFFSET_COMMIT_KEY, 1, OffsetCommitKey("grp", "t", 2), "0001 0003 677270 0001 74 00000002"),
    (GROUP_METADATA_KEY, 2, GroupMetadataKey("grp"), "0002 0003 677270"),
    (
        OFFSET_COMMIT_VALUE,
        0,
        OffsetCommitValue(258, -1, "mé", 1_700_000_000_000),
        "0000 0000000000000102 0003 6dc3a9 0000018bcfe56800",
    ),
    (
        OFFSET_COMMIT_VALUE,
        1,
        OffsetCommitValue(258, -1, "mé", 1_700_000_000_000, 1_700_000_000_001),
        "0001 0000000000000102 0003 6dc3a9 0000018bcfe56800 0000018bcfe56801",
    ),
    (
        OFFSET_COMMIT_VALUE,
        2,
        OffsetCommitValue(258, -1, "mé", 1_700_000_000_000),
        "0002 0000000000000102 0003 6dc3a9 0000018bcfe56800",
    ),
    (
        OFFSET_COMMIT_VALUE,
        3,
        COMMITTED,
        "0003 0000000000000102 00000007 0003 6dc3a9 0000018bcfe56800",
    ),
    (
        OFFSET_COMMIT_VALUE,
        4,
        COMMITTED,
        "0004 0000000000000102 00000007 04 6dc3a9 0000018bcfe56800 00",
    ),
    (
        GROUP_METADATA_VALUE,
        0,
        GroupMetadataValue("", -1, None, None, -1, []),
        "0000 0000 ffffffff ffff ffff 00000000",
    ),
    (
        GROUP_METADATA_VALUE,
        1,
        GroupMetadataValue(
            "c", 1, "p", "m", -1, [MemberMetadata("m", None, "i", "h", 3, 2, b"s", b"")]
        ),
        "0001 0001 63 00000001 0001 70 0001 6d 00000001"
        " 0001 6d 0001 69 0001 68 00000003 00000002 00000001 73 00000000",
    ),
    (
        GROUP_METADATA_VALUE,
        2,
        GroupMetadataValue("c", 1, "p", "m", 9, []),
        "0002 0001 63 00000001 0001 70 0001 6d 0000000000000009 00000000",
    ),
    (
        GROUP_METADATA_VALUE,
        3,
        STABLE,
        "0003 0008 636f6e73756d6572 00000005 0005 72616e6765 0003 6d2d31 0000018bcfe56800 00000001"
        " 0003 6d2d31 0006 7261636b2d37 0003 617070 000a 2f3132372e302e302e31"
        " 000493e0 0000afc8 00000002 0102 00000001 03",
    ),
    (
        GROUP_METADATA_VALUE,
        4,
        STABLE,
        "0004 09 636f6e73756d6572 00000005 06 72616e6765 04 6d2d31 0000018bcfe56800 02"
        " 04 6d2d31 07 7261636b2d37 04 617070 0b 2f3132372e302e302e31"
        " 000493e0 0000afc8 03 0102 02 03 00 00",
    ),
    (
        SUBSCRIPTION,
        0,
        ConsumerProtocolSubscription(["t"], None),
        "0000 00000001 0001 74 ffffffff",
    ),
    (
        SUBSCRIPTION,
        1,
        ConsumerProtocolSubscription(["t"], b"", [TopicPartition("t", [3])]),
        "0001 00000001 0001 74 00000000 00000001 0001 74 00000001 00000003",
    ),
    (
        SUBSCRIPTION,
        2,
        ConsumerProtocolSubscription([], b"u", [], 5),
        "0002 00000000 00000001 75 00000000 00000005",
    ),
    (
        SUBSCRIPTION,
        3,
        ConsumerProtocolSubscription([], None, [], -1, "r"),
        "0003 00000000 ffffffff 00000000 ffffffff 0001 72",
    ),
    *(
        (
            ASSIGNMENT,
            version,
            ConsumerProtocolAssignment([TopicPartition("t", [0, 1])], None),
            f"000{version} 00000001 0001 74 00000002 00000000 00000001 ffffffff",
        )
        for version in range(4)
    ),
]


def test_every_version_has_golden_bytes() -> None:
    assert {(each[0].name, each[1]) for each in GOLDEN} == {
        (case.versioned.name, case.version) for case in CASES
    }


@pytest.mark.parametrize(
    ("versioned", "version", "value", "raw"),
    GOLDEN,
    ids=[f"{versioned.name}-{version}" for versioned, version, _, _ in GOLDEN],
)
def test_golden_bytes(versioned: Versioned[Any], version: int, value: Any, raw: str) -> None:
    assert versioned.encode(value, version) == bytes.fromhex(raw)
    assert versioned.decode(bytes.fromhex(raw)) == value


@pytest.mark.parametrize("case", CASES, ids=str)
def test_round_trip(case: DataCase) -> None:
    def check(draw: Random) -> None:
        sent = case.draw(draw)
        raw = case.versioned.encode(sent, case.version)
        assert int.from_bytes(raw[:2], "big") == case.version
        for buffer in (raw, bytearray(raw), memoryview(raw)):
            assert case.versioned.decode(buffer) == sent

    for_draws(40, case, check)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_bytes_give_a_value_or_a_protocol_error(case: DataCase) -> None:
    def check(draw: Random) -> None:
        raw = bytearray(case.versioned.encode(case.draw(draw), case.version))
        del raw[4000:]
        for _ in range(draw.randint(1, 3)):
            at = draw.randint(0, len(raw))
            match draw.choice(["cut", "set", "put", "length"]):
                case "cut":
                    del raw[at:]
                case "set":
                    raw[at : at + 1] = draw.randbytes(1)
                case "put":
                    raw[at:at] = draw.randbytes(draw.randint(1, 6))
                case "length":
                    raw[at : at + 4] = draw.choice(HOSTILE_BODIES)[:5]
        try:
            value = case.versioned.decode(raw)
        except ProtocolError:
            return
        assert type(value) is case.versioned.struct_class

    for_draws(60, case, check)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_cut_is_a_protocol_error(case: DataCase) -> None:
    def check(draw: Random) -> None:
        raw = case.versioned.encode(case.draw(draw), case.version)
        for length in range(0, len(raw), max(1, len(raw) // 50)):
            with pytest.raises(ProtocolError):
                case.versioned.decode(raw[:length])

    for_draws(3, case, check)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_claimed_lengths_allocate_nothing(case: DataCase) -> None:
    case.versioned.decode(case.versioned.encode(case.draw(Random(1)), case.version))
    for body in HOSTILE_BODIES:
        raw = case.version.to_bytes(2, "big") + body
        tracemalloc.start()
        try:
            case.versioned.decode(raw)
        except ProtocolError:
            pass
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < 32 * 1024


@pytest.mark.parametrize("versioned", VERSIONED, ids=lambda each: each.name)
class TestVersions:
    def test_a_version_that_is_not_known_cannot_be_written(self, versioned: Versioned[Any]) -> None:
        for version in (versioned.min_version - 1, versioned.max_version + 1):
            with pytest.raises(SchemaError, match=f"{versioned.name} version {version}"):
                versioned.encode(versioned.struct_class(), version)

    def test_a_negative_version_is_damage_and_not_news(self, versioned: Versioned[Any]) -> None:
        for raw in (b"\xff\xff" + bytes(40), b"\x80\0" + bytes(40)):
            with pytest.raises(ProtocolError, match=f"{versioned.name} version -") as caught:
                versioned.decode(raw)
            assert not isinstance(caught.value, UnknownVersion)

    def test_no_room_for_a_version_is_a_protocol_error(self, versioned: Versioned[Any]) -> None:
        for raw in (b"", b"\0"):
            with pytest.raises(ProtocolError, match=f"{versioned.name} of {len(raw)} bytes"):
                versioned.decode(raw)

    def test_another_struct_is_refused(self, versioned: Versioned[Any]) -> None:
        with pytest.raises(SchemaError, match=f"a MemberMetadata is not a {versioned.name}"):
            versioned.encode(MEMBER, versioned.max_version)


def newer(versioned: Versioned[Any]) -> bytes:
    """Defaults behind a version that is not known yet."""
    newest = versioned.encode(versioned.struct_class(), versioned.max_version)
    return (versioned.max_version + 1).to_bytes(2, "big") + newest[2:]


@pytest.mark.parametrize(
    "versioned", [SUBSCRIPTION, ASSIGNMENT], ids=lambda versioned: versioned.name
)
def test_what_consumers_exchange_may_grow_at_its_end(versioned: Versioned[Any]) -> None:
    newest = versioned.encode(versioned.struct_class(), versioned.max_version)
    assert versioned.decode(newer(versioned) + b"and more") == versioned.struct_class()
    assert versioned.decode(newest + b"and more") == versioned.struct_class()


@pytest.mark.parametrize("versioned", RECORDS, ids=lambda versioned: versioned.name)
def test_a_newer_record_is_to_be_skipped(versioned: Versioned[Any]) -> None:
    known = f"versions up to {versioned.max_version} are known"
    with pytest.raises(UnknownVersion, match=known) as caught:
        versioned.decode(newer(versioned))
    assert caught.value.version == versioned.max_version + 1


@pytest.mark.parametrize("versioned", RECORDS, ids=lambda versioned: versioned.name)
def test_nothing_follows_a_record(versioned: Versioned[Any]) -> None:
    newest = versioned.encode(versioned.struct_class(), versioned.max_version)
    with pytest.raises(ProtocolError, match=f"1 bytes follow a {versioned.name}"):
        versioned.decode(newest + b"\0")


def test_a_version_before_the_first_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="GroupMetadataKey version 1: versions from 2"):
        GROUP_METADATA_KEY.decode(bytes.fromhex("0001 0001 67"))


def test_a_value_that_cannot_travel_is_refused() -> None:
    with pytest.raises(SchemaError, match="OffsetCommitValue version 3"):
        OFFSET_COMMIT_VALUE.encode(OffsetCommitValue(offset=2**63), 3)
    with pytest.raises(SchemaError, match="GroupMetadataKey version 2"):
        GROUP_METADATA_KEY.encode(GroupMetadataKey("g" * 32_768), 2)


def test_long_bytes_stay_in_their_place() -> None:
    members = [
        MemberMetadata(f"m{i}", None, "c", "h", 1, 1, bytes([i]) * 20_000, b"") for i in range(3)
    ]
    sent = GroupMetadataValue("consumer", 1, "range", "m0", 5, members)
    assert GROUP_METADATA_VALUE.decode(encode_group_metadata_value(sent)) == sent


def test_unknown_tagged_fields_of_version_4_are_skipped() -> None:
    plain = OFFSET_COMMIT_VALUE.encode(COMMITTED, 4)
    tagged = plain[:-1] + b"\x02" + b"\x00\x10" + bytes(16) + b"\x63\x01?"
    assert OFFSET_COMMIT_VALUE.decode(tagged) == COMMITTED


class TestConsumerOffsets:
    """What a coordinator writes to its topic, and how it tells the records apart."""

    def test_keys_are_written_as_kafka_writes_them(self) -> None:
        assert encode_key(OffsetCommitKey("g", "t", 0))[:2] == b"\0\1"
        assert encode_key(GroupMetadataKey("g"))[:2] == b"\0\2"

    def test_the_version_tells_the_kind_of_key(self) -> None:
        committed, group = OffsetCommitKey("g", "t", 4), GroupMetadataKey("g")
        assert decode_key(OFFSET_COMMIT_KEY.encode(committed, 0)) == committed
        assert decode_key(OFFSET_COMMIT_KEY.encode(committed, 1)) == committed
        assert decode_key(memoryview(encode_key(group))) == group
        assert len({committed, decode_key(encode_key(committed)), group}) == 2

    @pytest.mark.parametrize("version", [3, 8, 32_767])
    def test_keys_of_newer_groups_are_to_be_skipped(self, version: int) -> None:
        with pytest.raises(
            UnknownVersion, match=r"__consumer_offsets version \d+: versions up to 2"
        ):
            decode_key(version.to_bytes(2, "big") + b"\0\1g")

    @pytest.mark.parametrize("raw", ["", "00", "ffff 0001 67", "0002 0005 67", "0002 0001 67 00"])
    def test_damaged_keys_are_not(self, raw: str) -> None:
        with pytest.raises(ProtocolError) as caught:
            decode_key(bytes.fromhex(raw))
        assert not isinstance(caught.value, UnknownVersion)

    def test_values_are_written_as_kafka_3_9_writes_them(self) -> None:
        assert encode_offset_commit_value(COMMITTED) == OFFSET_COMMIT_VALUE.encode(COMMITTED, 3)
        assert encode_group_metadata_value(STABLE) == GROUP_METADATA_VALUE.encode(STABLE, 3)

    def test_an_expiry_of_its_own_takes_version_1(self) -> None:
        sent = OffsetCommitValue(9, 3, "", 100, 200)
        raw = encode_offset_commit_value(sent)
        assert raw[:2] == b"\0\1"
        assert OFFSET_COMMIT_VALUE.decode(raw) == OffsetCommitValue(9, -1, "", 100, 200)


def test_an_older_version_leaves_out_what_it_lacks() -> None:
    full = ConsumerProtocolSubscription(["t"], b"u", [TopicPartition("t", [1])], 4, "r")
    assert SUBSCRIPTION.decode(SUBSCRIPTION.encode(full, 0)) == ConsumerProtocolSubscription(
        ["t"], b"u"
    )
