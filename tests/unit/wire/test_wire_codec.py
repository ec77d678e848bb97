"""Headers, versions and misuse: what the codec says besides messages themselves."""

from __future__ import annotations

import dataclasses
import re
import struct
import typing

import pytest
from tests.support.wire import VERSIONED, all_cases, joined

from tidelog.core.errors import ProtocolError
from tidelog.wire import decoding, encoding, registry, schema
from tidelog.wire.codec import (
    RequestHeader,
    UnsupportedVersion,
    decode_body,
    decode_header,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from tidelog.wire.encoding import OWN_PART_BYTES
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.controlled_shutdown import ControlledShutdownRequest
from tidelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
    ReplicaState,
)
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataTopicState
from tidelog.wire.primitives import Buffer, encode_uvarint
from tidelog.wire.registry import (
    API,
    API_VERSIONS,
    CONTROLLED_SHUTDOWN,
    FETCH,
    JOIN_GROUP,
    LEADER_AND_ISR,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    UPDATE_METADATA,
)
from tidelog.wire.schema import SchemaError, Versions, int32

#: Records in a view whose length is not its bytes.
WIDE = PartitionProduceData(records=memoryview(bytes(8)).cast("i"))


class TestBytes:
    """Bytes fields, which outlive their frame."""

    def test_bytes_are_no_view_of_the_frame(self) -> None:
        sent = JoinGroupRequest("g", protocols=[JoinGroupRequestProtocol("range", b"topics")])
        for version in (0, 9):
            frame = bytearray(joined(encode_request(JOIN_GROUP, version, 1, None, sent)))
            _, request = decode_request(memoryview(frame))
            frame[:] = bytes(len(frame))
            assert type(request.protocols[0].metadata) is bytes
            assert request == sent

    def test_bytes_beside_records_are_no_view_either(self) -> None:
        @dataclasses.dataclass(slots=True)
        class Both:
            data: typing.Any = schema.records("0+")  # noqa: RUF009
            note: bytes = schema.binary("0+")

        raw = struct.pack(">i2si3s", 2, b"re", 3, b"not")
        both, _ = decoding.build_decoder(Both, 0, False)(memoryview(raw), 0, len(raw))
        assert (type(both.data), type(both.note)) == (memoryview, bytes)
        assert (both.data, both.note) == (b"re", b"not")

    @pytest.mark.parametrize("wrong", [None, "text", 5, memoryview(bytes(8)).cast("i")])
    def test_what_is_no_bytes_is_refused(self, wrong: typing.Any) -> None:
        sent = JoinGroupRequest(protocols=[JoinGroupRequestProtocol("range", wrong)])
        with pytest.raises(SchemaError):
            encode_request(JOIN_GROUP, 9, 1, None, sent)

    def test_any_buffer_is_taken(self) -> None:
        for given in (b"abc", bytearray(b"abc"), memoryview(b"abc")):
            sent = JoinGroupRequest(protocols=[JoinGroupRequestProtocol("range", given)])  # type: ignore[arg-type]  # a wrong type is what is tested
            frame = joined(encode_request(JOIN_GROUP, 5, 1, None, sent))
            assert decode_request(frame)[1].protocols[0].metadata == b"abc"


class TestHeaders:
    def test_an_unknown_api_keeps_its_header(self) -> None:
        frame = memoryview(bytes.fromhex("7fff 0001 00000009 0002 6d65"))
        with pytest.raises(UnsupportedVersion, match="API key 32767 version 1") as caught:
            decode_header(frame)
        assert caught.value.header == RequestHeader(32767, 1, 9, "me")

    def test_a_version_above_the_range_keeps_its_header_and_names_the_range(self) -> None:
        frame = memoryview(bytes.fromhex("0012 0063 00000009 ffff 00"))
        with pytest.raises(UnsupportedVersion, match="versions 0 to 4") as caught:
            decode_header(frame)
        assert caught.value.header == RequestHeader(API_VERSIONS, 99, 9, None)

    def test_a_body_of_an_unknown_version_is_refused_alike(self) -> None:
        with pytest.raises(UnsupportedVersion):
            decode_body(RequestHeader(PRODUCE, 2, 0, None), memoryview(b""), 0)

    def test_unknown_tags_of_a_header_are_skipped(self) -> None:
        frame = bytes.fromhex("0012 0003 00000001 0001 61 01 05 02 ffff") + b"\x02x\x02y\0"
        header, request = decode_request(memoryview(frame))
        assert header == RequestHeader(API_VERSIONS, 3, 1, "a")
        assert request == ApiVersionsRequest("x", "y")

    @pytest.mark.parametrize(
        "frame",
        [
            b"",
            bytes(9),
            bytes.fromhex("0012 0000 00000001 0005 6162"),
            bytes.fromhex("0012 0000 00000001 fffe"),
            bytes.fromhex("0012 0003 00000001 ffff"),
            bytes.fromhex("0012 0003 00000001 ffff 01 00 7f"),
            bytes.fromhex("0012 0003 00000001 ffff ffffffffff0f"),
        ],
    )
    def test_a_broken_header_is_a_protocol_error(self, frame: bytes) -> None:
        with pytest.raises(ProtocolError):
            decode_request(memoryview(frame))

    def test_the_first_controlled_shutdown_alone_has_no_client_id(self) -> None:
        sent = ControlledShutdownRequest(0x12345678)
        frame = joined(encode_request(CONTROLLED_SHUTDOWN, 0, 9, "nobody reads this", sent))
        assert bytes(frame) == bytes.fromhex("0007 0000 00000009 12345678")
        assert decode_request(frame) == (RequestHeader(CONTROLLED_SHUTDOWN, 0, 9, None), sent)
        later = joined(encode_request(CONTROLLED_SHUTDOWN, 1, 9, "me", sent))
        assert bytes(later) == bytes.fromhex("0007 0001 00000009 0002 6d65 12345678")

    @pytest.mark.parametrize("broker_id", [0, -1, 0x7FFF_0000, -(2**31)])
    def test_a_broker_id_is_not_taken_for_the_length_of_a_client_id(self, broker_id: int) -> None:
        sent = ControlledShutdownRequest(broker_id)
        frame = joined(encode_request(CONTROLLED_SHUTDOWN, 0, 1, None, sent))
        assert decode_request(frame)[1] == sent

    @pytest.mark.parametrize("size", range(4))
    def test_a_first_controlled_shutdown_without_a_broker_is_refused(self, size: int) -> None:
        frame = bytes.fromhex("0007 0000 00000001") + bytes(size)
        with pytest.raises(ProtocolError):
            decode_request(memoryview(frame))

    def test_a_client_id_too_long_for_the_header_is_refused(self) -> None:
        with pytest.raises(SchemaError):
            encode_request(API_VERSIONS, 0, 1, "x" * 40_000, ApiVersionsRequest())


class TestApiVersions:
    def test_answers_carry_header_version_0_even_where_flexible(self) -> None:
        frame = joined(encode_response(API_VERSIONS, 3, 7, ApiVersionsResponse()))
        assert bytes(frame) == bytes.fromhex("00000007 0000 01 00000000 00")

    def test_an_unsupported_version_answer_is_read_at_version_0(self) -> None:
        answer = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 3)])
        frame = joined(encode_response(API_VERSIONS, 0, 7, answer))
        for asked in range(5):
            assert decode_response(API_VERSIONS, asked, frame) == (7, answer)

    def test_error_35_at_the_version_asked_for_is_read_too(self) -> None:
        answer = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 3)])
        for asked in range(5):
            frame = joined(encode_response(API_VERSIONS, asked, 7, answer))
            assert decode_response(API_VERSIONS, asked, frame) == (7, answer)


class TestRecords:
    def request(self, records: object) -> ProduceRequest:
        partition = PartitionProduceData(index=3, records=records)  # type: ignore[arg-type]  # of any form
        return ProduceRequest(topic_data=[TopicProduceData("t", [partition])])

    def test_several_buffers_follow_each_other(self) -> None:
        slices: list[Buffer] = [
            memoryview(b"a" * 9000),
            b"bc",
            bytearray(b"d" * OWN_PART_BYTES),
            b"",
        ]
        parts = encode_request(PRODUCE, 9, 1, None, self.request(slices))
        assert parts[1] is slices[0]
        assert parts[3] is slices[2]
        _, decoded = decode_request(joined(parts))
        assert decoded.topic_data[0].partition_data[0].records == b"".join(slices)

    @pytest.mark.parametrize("version", [8, 9])
    def test_null_and_empty_records_differ(self, version: int) -> None:
        for records in (None, b""):
            frame = joined(encode_request(PRODUCE, version, 1, None, self.request(records)))
            decoded = decode_request(frame)[1].topic_data[0].partition_data[0].records
            assert decoded == records

    def test_no_buffers_at_all_are_empty_records(self) -> None:
        frame = joined(encode_request(PRODUCE, 9, 1, None, self.request([])))
        assert decode_request(frame)[1].topic_data[0].partition_data[0].records == b""

    def test_more_than_a_frame_can_hold_is_refused(self) -> None:
        chunk = bytes(1 << 20)
        with pytest.raises(SchemaError, match="is no frame"):
            encode_request(PRODUCE, 9, 1, None, self.request([chunk] * 2048))

    def test_decoded_records_are_views_of_the_frame(self) -> None:
        frame = bytearray(b"".join(encode_request(PRODUCE, 9, 1, None, self.request(b"zzz"))))
        _, decoded = decode_request(memoryview(frame)[4:])
        records = decoded.topic_data[0].partition_data[0].records
        frame[frame.index(b"zzz")] = ord("a")
        assert bytes(records) == b"azz"


class TestVersionsOfFields:
    def test_a_field_that_the_version_lacks_must_be_default(self) -> None:
        request = FetchRequest(
            topics=[FetchTopic(partitions=[FetchPartition(last_fetched_epoch=4)])]
        )
        with pytest.raises(SchemaError, match=r"FetchPartition.last_fetched_epoch .* version 11"):
            encode_request(FETCH, 11, 1, None, request)
        encode_request(FETCH, 12, 1, None, request)

    def test_an_ignorable_field_is_dropped(self) -> None:
        request = FetchRequest(rack_id="r", session_id=4)
        frame = joined(encode_request(FETCH, 6, 1, None, request))
        assert decode_request(frame)[1] == FetchRequest()

    def test_a_struct_that_the_version_lacks_must_be_default(self) -> None:
        request = FetchRequest(replica_state=ReplicaState(1, 2))
        with pytest.raises(SchemaError, match="replica_state"):
            encode_request(FETCH, 14, 1, None, request)

    def test_a_struct_equal_to_the_default_is_not_sent(self) -> None:
        data = PartitionData(current_leader=LeaderIdAndEpoch(-1, -1))
        response = FetchResponse(responses=[FetchableTopicResponse(partitions=[data])])
        plain = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData()])])
        assert encode_response(FETCH, 12, 1, response) == encode_response(FETCH, 12, 1, plain)
        assert encode_response(FETCH, 11, 1, response) == encode_response(FETCH, 11, 1, plain)

    def test_null_where_the_version_knows_none_is_refused(self) -> None:
        encode_request(METADATA, 1, 1, None, MetadataRequest(topics=None))
        with pytest.raises(SchemaError):
            encode_request(METADATA, 0, 1, None, MetadataRequest(topics=None))
        by_id = MetadataRequest(topics=[MetadataRequestTopic(b"i" * 16, None)])
        encode_request(METADATA, 12, 1, None, by_id)
        with pytest.raises(SchemaError):
            encode_request(METADATA, 9, 1, None, by_id)

    def test_null_on_the_wire_where_the_version_knows_none_is_refused(self) -> None:
        with pytest.raises(ProtocolError, match=r"MetadataRequest\.topics is null"):
            decode_body(RequestHeader(METADATA, 0, 0, None), memoryview(b"\xff\xff\xff\xff"), 0)

    def test_unknown_tagged_fields_are_skipped(self) -> None:
        frame = joined(encode_request(METADATA, 9, 1, None, MetadataRequest()))
        tagged = bytes(frame[:-1]) + bytes.fromhex("02 00 01 ff 8101 02 abcd")
        assert decode_request(memoryview(tagged))[1] == MetadataRequest()

    def test_a_known_tagged_field_of_the_wrong_size_is_refused(self) -> None:
        frame = joined(encode_request(FETCH, 15, 1, None, FetchRequest()))
        good = bytes(frame[:-1]) + bytes.fromhex("01 01 0d 00000001 0000000000000002 00")
        assert decode_request(memoryview(good))[1].replica_state == ReplicaState(1, 2)
        bad = bytes(frame[:-1]) + bytes.fromhex("01 01 0e 00000001 0000000000000002 00 00")
        with pytest.raises(ProtocolError, match="replica_state"):
            decode_request(memoryview(bad))


class TestMisuse:
    @pytest.mark.parametrize(
        ("version", "message"),
        [
            (9, ProduceRequest(acks=1 << 20)),
            (9, ProduceRequest(acks="all")),  # type: ignore[arg-type]  # a wrong type is what is tested
            (9, ProduceRequest(topic_data=[TopicProduceData(None)])),  # type: ignore[arg-type]  # a wrong type is what is tested
            (9, ProduceRequest(topic_data=[TopicProduceData("\ud800")])),
            (9, ProduceRequest(topic_data=[None])),  # type: ignore[list-item]  # a wrong type is what is tested
            (8, ProduceRequest(topic_data=[TopicProduceData("x" * 40_000)])),
            (9, FetchRequest()),
            (9, ProduceRequest(topic_data=[TopicProduceData("t", [WIDE])])),
            (99, ProduceRequest()),
        ],
    )
    def test_a_message_that_cannot_be_sent_is_a_schema_error(
        self, version: int, message: object
    ) -> None:
        with pytest.raises(SchemaError):
            encode_request(PRODUCE, version, 1, None, message)

    def test_an_id_that_is_not_16_bytes_is_refused(self) -> None:
        request = FetchRequest(topics=[FetchTopic(topic_id=b"short")])
        with pytest.raises(SchemaError, match=r"FetchTopic.topic_id is not 16 bytes"):
            encode_request(FETCH, 13, 1, None, request)

    def test_null_is_no_short_way_to_an_empty_array(self) -> None:
        state = LeaderAndIsrPartitionState(adding_replicas=None)  # type: ignore[arg-type]  # a wrong type is what is tested
        topic = LeaderAndIsrTopicState(partition_states=[state])
        with pytest.raises(SchemaError):
            encode_request(LEADER_AND_ISR, 7, 1, None, LeaderAndIsrRequest(topic_states=[topic]))

    def test_a_response_of_an_unknown_version_is_refused(self) -> None:
        with pytest.raises(SchemaError):
            decode_response(PRODUCE, 99, memoryview(b""))


class TestDeclarations:
    def test_each_api_has_a_constant_of_its_name(self) -> None:
        names = {key: re.sub(r"(?<!^)(?=[A-Z])", "_", api.name).upper() for key, api in API.items()}
        assert names == {key: name for key, name in names.items() if getattr(registry, name) == key}
        assert list(API) == sorted(API)

    @pytest.mark.parametrize(
        ("text", "low", "high"), [("3+", 3, 0x7FFF), ("0-12", 0, 12), ("5", 5, 5)]
    )
    def test_versions_are_read_as_kafka_writes_them(self, text: str, low: int, high: int) -> None:
        assert Versions.parse(text) == Versions(low, high)
        assert low in Versions.parse(text)
        assert low - 1 not in Versions.parse(text)

    def test_no_versions(self) -> None:
        assert 0 not in Versions.parse("none")

    @pytest.mark.parametrize("text", ["", "+", "a", "3-", "3+4", "-1"])
    def test_other_texts_are_refused(self, text: str) -> None:
        with pytest.raises(SchemaError):
            Versions.parse(text)

    def test_an_undeclared_field_is_refused(self) -> None:
        @dataclasses.dataclass(slots=True)
        class Bad:
            declared: int = int32("0+")
            undeclared: int = 0

        with pytest.raises(SchemaError, match=r"Bad\.undeclared"):
            schema.fields_of(Bad)

    def test_every_annotation_says_what_the_declaration_says(self) -> None:
        python_types = {
            "bool": "bool",
            "float64": "float",
            "string": "str",
            "uuid": "bytes",
            "bytes": "bytes",
            "records": "Records",
        }
        for struct_class in every_struct():
            hints = struct_class.__annotations__
            for name, spec in ((f.name, f.spec) for f in schema.fields_of(struct_class)):
                if spec.kind == "array" and isinstance(spec.element, type):
                    expected = f"list[{spec.element.__name__}]"
                elif spec.kind == "array":
                    expected = f"Sequence[{python_types.get(str(spec.element), 'int')}]"
                elif spec.kind == "struct":
                    expected = typing.cast(type, spec.element).__name__
                else:
                    expected = python_types.get(spec.kind, "int")
                nullable = spec.nullable.high >= 0
                assert hints[name] == expected + (" | None" if nullable else ""), (
                    struct_class,
                    name,
                )

    def test_every_field_travels_at_some_version_spoken(self) -> None:
        for api in API.values():
            for message in (api.request, api.response):
                spoken = range(api.min_version, api.max_version + 1)
                for struct_class in structs_of(message):
                    for field in schema.fields_of(struct_class):
                        assert any(v in field.spec.versions for v in spoken), (message, field.name)

    def test_tagged_fields_live_in_flexible_versions_only(self) -> None:
        for case in all_cases():
            for struct_class in structs_of(case.message):
                if not case.flexible:
                    assert not schema.tagged_fields(struct_class, case.version)

    def test_structs_shared_as_defaults_are_frozen(self) -> None:
        for struct_class in every_struct():
            for field in schema.fields_of(struct_class):
                if field.spec.kind == "struct":
                    assert schema.is_frozen(typing.cast(type, field.spec.element))

    def test_elements_without_bytes_are_refused(self) -> None:
        @dataclasses.dataclass(slots=True)
        class Nothing:
            pass

        @dataclasses.dataclass(slots=True)
        class Many:
            nothings: list[Nothing] = schema.array(Nothing, "0+")  # noqa: RUF009

        with pytest.raises(SchemaError, match="no bytes"):
            decoding.build_decoder(Many, 0, False)

    def test_the_default_replica_of_epoch_lookups_is_the_debugging_one(self) -> None:
        frame = joined(
            encode_request(OFFSET_FOR_LEADER_EPOCH, 2, 1, None, OffsetForLeaderEpochRequest())
        )
        assert decode_request(frame)[1].replica_id == -2


class TestTypesThatNoMessageHasYet:
    @dataclasses.dataclass(slots=True)
    class Numbers:
        longs: typing.Sequence[int] = schema.array("int64", "0+")
        names: typing.Sequence[str] | None = schema.array("string", "0+", nullable="0+")

    @pytest.mark.parametrize("flexible", [False, True])
    @pytest.mark.parametrize("names", [None, [], ["a", "", "ü" * 100]])
    def test_arrays_of_other_primitives(self, flexible: bool, names: list[str] | None) -> None:
        message = self.Numbers([1, -(2**63)], names)
        out: list[Buffer] = []
        encoding.build_encoder(self.Numbers, 0, flexible)(message, out, [])
        raw = b"".join(out)
        decoded = decoding.build_decoder(self.Numbers, 0, flexible)(raw, 0, len(raw))
        assert decoded == (message, len(raw))

    def test_a_struct_outside_the_tagged_section(self) -> None:
        @dataclasses.dataclass(slots=True)
        class Outer:
            before: int = int32("0+")
            inner: ReplicaState = schema.nested(ReplicaState, "0+")  # noqa: RUF009
            after: int = int32("0+")

        message = Outer(1, ReplicaState(2, 3), 4)
        out: list[Buffer] = []
        encoding.build_encoder(Outer, 15, True)(message, out, [])
        raw = b"".join(out)
        assert raw == struct.pack(">iiqxix", 1, 2, 3, 4)
        assert decoding.build_decoder(Outer, 15, True)(raw, 0, len(raw)) == (message, len(raw))

    def test_what_is_not_generated_says_so(self) -> None:
        @dataclasses.dataclass(slots=True)
        class Ids:
            ids: list[bytes] = schema.array("uuid", "0+")  # noqa: RUF009

        for build in (decoding.build_decoder, encoding.build_encoder):
            with pytest.raises(SchemaError, match="uuid"):
                build(Ids, 0, True)

    @pytest.mark.parametrize("flexible", [False, True])
    def test_nullable_integers_travel_behind_their_length(self, flexible: bool) -> None:
        @dataclasses.dataclass(slots=True)
        class NullableInts:
            before: int = int32("0+")
            ints: list[int] | None = schema.array("int32", "0+", nullable="0+")  # noqa: RUF009

        encode = encoding.build_encoder(NullableInts, 0, flexible)
        decode = decoding.build_decoder(NullableInts, 0, flexible)
        for ints in (None, [], [-1], list(range(127)), list(range(300))):
            out: list[Buffer] = []
            encode(NullableInts(7, ints), out, [])
            raw = b"".join(out)
            count = -1 if ints is None else len(ints)
            length = struct.pack(">i", count)
            if flexible:
                length = encode_uvarint(count + 1)
            numbers = b"".join(struct.pack(">i", each) for each in ints or ())
            assert raw == struct.pack(">i", 7) + length + numbers + bytes(flexible)
            assert decode(raw, 0, len(raw)) == (NullableInts(7, ints), len(raw))

    @pytest.mark.parametrize("flexible", [False, True])
    def test_a_nullable_struct_has_a_byte_before_it(self, flexible: bool) -> None:
        @dataclasses.dataclass(frozen=True, slots=True)
        class Inner:
            number: int = int32("0+")

        @dataclasses.dataclass(slots=True)
        class Outer:
            before: int = int32("0+")
            inner: Inner | None = schema.nested(Inner, "0+", nullable="0+")  # noqa: RUF009
            after: int = int32("0+")

        tag = bytes(flexible)
        for message, raw in (
            (Outer(1, None, 2), struct.pack(">ibi", 1, -1, 2) + tag),
            (Outer(1, Inner(3), 2), struct.pack(">ibi", 1, 1, 3) + tag + b"\0\0\0\2" + tag),
        ):
            out: list[Buffer] = []
            encoding.build_encoder(Outer, 0, flexible)(message, out, [])
            assert b"".join(out) == raw
            decode = decoding.build_decoder(Outer, 0, flexible)
            assert decode(raw, 0, len(raw)) == (message, len(raw))
            assert schema.struct_min_size(Outer, 0, flexible) == 9 + flexible

    def test_what_is_null_by_default_must_be_null_where_it_is_absent(self) -> None:
        @dataclasses.dataclass(frozen=True, slots=True)
        class Inner:
            number: int = int32("0+")

        @dataclasses.dataclass(slots=True)
        class Late:
            inner: Inner | None = schema.nested(Inner, "1+", nullable="1+")  # noqa: RUF009
            ints: list[int] | None = schema.array("int32", "1+", None, nullable="1+")  # noqa: RUF009
            number: int = int32("0+")

        assert Late() == Late(None, None, 0)
        assert decoding.build_decoder(Late, 0, False)(bytes(4), 0, 4) == (Late(), 4)
        encode = encoding.build_encoder(Late, 0, False)
        encode(Late(), [], [])
        with pytest.raises(SchemaError, match=r"Late\.inner is set"):
            encode(Late(inner=Inner()), [], [])
        with pytest.raises(SchemaError, match=r"Late\.ints is set"):
            encode(Late(ints=[]), [], [])

    @pytest.mark.parametrize("count", [0, 1, 200, 2_000])
    @pytest.mark.parametrize("version", [6, 8])
    def test_a_shared_list_is_encoded_as_any_other_and_once(self, count: int, version: int) -> None:
        topics = [
            UpdateMetadataTopicState(
                f"topic-{n}", topic_id=bytes(16) if version < 7 else bytes(range(16))
            )
            for n in range(count)
        ]
        shared = schema.SharedList(topics)

        def frame(states: list[UpdateMetadataTopicState], broker_epoch: int) -> bytes:
            message = UpdateMetadataRequest(1, broker_epoch=broker_epoch, topic_states=states)
            return bytes(joined(encode_request(UPDATE_METADATA, version, 7, None, message)))

        for broker_epoch in (3, 4):
            assert frame(shared, broker_epoch) == frame(topics, broker_epoch)
        assert list(shared.encoded) == ([version] if count else [])
        other = 6 if version == 8 else 8
        plain = UpdateMetadataRequest(1, topic_states=topics)
        same = UpdateMetadataRequest(1, topic_states=shared)
        assert joined(encode_request(UPDATE_METADATA, other, 7, None, same)) == joined(
            encode_request(UPDATE_METADATA, other, 7, None, plain)
        )
        if count:
            shared[0] = UpdateMetadataTopicState("another")
            assert frame(shared, 3) == frame(topics, 3)

    @pytest.mark.parametrize("kind", ["tagged", "shared"])
    def test_records_cannot_be_tagged_or_shared(self, kind: str) -> None:
        @dataclasses.dataclass(frozen=True, slots=True)
        class Hidden:
            data: typing.Any = schema.records("0+")  # noqa: RUF009

        @dataclasses.dataclass(slots=True)
        class Outer:
            hidden: Hidden = schema.nested(Hidden, "0+", tag=0)  # noqa: RUF009

        @dataclasses.dataclass(slots=True)
        class Sharing:
            hidden: list[Hidden] = schema.array(Hidden, "0+", shared=True)  # noqa: RUF009

        with pytest.raises(SchemaError, match=kind):
            encoding.build_encoder(Outer if kind == "tagged" else Sharing, 0, True)


def structs_of(struct_class: type) -> list[type]:
    """A message's class and those of all structs inside."""
    found = [struct_class]
    for field in schema.fields_of(struct_class):
        if isinstance(field.spec.element, type):
            found += structs_of(field.spec.element)
    return found


def every_struct() -> list[type]:
    """All message and struct classes."""
    tops = [message for api in API.values() for message in (api.request, api.response)]
    tops += [versioned.struct_class for versioned in VERSIONED]
    return [struct_class for top in tops for struct_class in structs_of(top)]
