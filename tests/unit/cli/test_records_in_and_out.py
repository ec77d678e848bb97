"""Bytes to records and back: delimiters, keys, formats, places to begin, whatever the bytes."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cli import check

from tidelog.cli import documents
from tidelog.cli.names import PartitionWord, nearest, partition_numbers, partition_word
from tidelog.cli.offsets import ReadSpan, Where, parse_span
from tidelog.cli.record_input import InputError, RecordShape, headers_of, pieces, unescaped
from tidelog.cli.record_output import formatter, json_line, plain_format
from tidelog.cli.resetting import ResetPlan, plan_of
from tidelog.cli.times import duration_ms, timestamp_ms
from tidelog.client.consuming import ConsumedRecord, read_records
from tidelog.client.fetching import EARLIEST, LATEST
from tidelog.core.limits import MAX_REQUEST_BYTES
from tidelog.core.types import TopicPartition
from tidelog.records.builder import NewRecord, build_batch
from tidelog.records.reader import Record

BEGINNING = Where(timestamp=EARLIEST)


def read_all(data: bytes, delimiter: bytes, *, at_once: int = 1 << 20) -> list[bytes]:
    """What `pieces` makes of bytes that come through a pipe, so many at a time."""
    reader, writer = os.pipe()

    def write() -> None:
        for start in range(0, len(data), at_once):
            os.write(writer, data[start : start + at_once])
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        return [piece for piece in pieces(reader, delimiter) if piece is not None]
    finally:
        os.close(reader)
        thread.join()


def reset_to(to_datetime: str | None = None, by_duration: str | None = None) -> ResetPlan:
    return plan_of({"--to-datetime": to_datetime, "--by-duration": by_duration})


class TestPieces:
    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            (b"", []),
            (b"a", [b"a"]),
            (b"a\n", [b"a"]),
            (b"a\n\nb", [b"a", b"", b"b"]),
            (b"\n", [b""]),
            (b"\xff\xfe\n\x00", [b"\xff\xfe", b"\x00"]),
            (b"a\r\n", [b"a\r"]),
        ],
    )
    def test_end_with_or_without_a_delimiter(self, data: bytes, expected: list[bytes]) -> None:
        assert read_all(data, b"\n") == expected

    @given(st.lists(st.binary(max_size=6)), st.sampled_from([b"\n", b"--", b"aba"]))
    def test_are_what_lies_between_delimiters_however_they_arrive(
        self, parts: list[bytes], delimiter: bytes
    ) -> None:
        data = delimiter.join(parts)
        expected = data.split(delimiter)
        if expected[-1] == b"":
            expected.pop()
        assert read_all(data, delimiter, at_once=2) == expected

    def test_what_came_so_far_is_worth_sending_when_nothing_follows(self) -> None:
        reader, writer = os.pipe()
        source: Iterator[bytes | None] = pieces(reader, b"\n")
        os.write(writer, b"typed\nhalf")
        assert next(source) == b"typed"
        assert next(source) is None
        os.write(writer, b" a line\n")
        assert next(source) == b"half a line"
        os.close(writer)
        assert list(source) == []
        os.close(reader)

    def test_without_any_delimiter_a_file_is_not_read_to_its_end(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "read", lambda *_: bytes(MAX_REQUEST_BYTES // 4))
        monkeypatch.setattr("select.select", lambda readers, *_: (readers, [], []))
        with pytest.raises(InputError, match="is the delimiter right"):
            list(pieces(0, b"\n"))


class TestShapes:
    def test_keys_end_at_their_first_delimiter(self) -> None:
        shape = RecordShape(key_delimiter=b"::", headers=(("h", b"v"),))
        record = shape.record(b"k::v::w")
        assert (record.key, record.value, record.headers) == (b"k", b"v::w", (("h", b"v"),))
        assert shape.record(b"no key").key is None
        assert RecordShape(fixed_key=b"f").record(b"v").key == b"f"

    def test_empty_is_null_where_that_is_asked_for(self) -> None:
        shape = RecordShape(key_delimiter=b":", empty_is_null=True)
        assert shape.record(b"k:")[:2] == (b"k", None)
        assert shape.record(b":v")[:2] == (None, b"v")
        assert RecordShape(key_delimiter=b":").record(b":")[:2] == (b"", b"")

    def test_headers_have_values_or_null(self) -> None:
        assert headers_of(["a=b=c", "n", "e="]) == (("a", b"b=c"), ("n", None), ("e", b""))

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("\\n", b"\n"),
            ("\\t\\\\", b"\t\\"),
            ("\\x1e\\xFF", b"\x1e\xff"),
            ("é", "é".encode()),
            ("\udcff", b"\xff"),
        ],
    )
    def test_delimiters_may_be_escaped(self, text: str, expected: bytes) -> None:
        assert unescaped(text, "-D") == expected

    @pytest.mark.parametrize("text", ["", "\\q", "\\x1"])
    def test_other_escapes_are_wrong_usage(self, text: str) -> None:
        with pytest.raises(typer.BadParameter):
            unescaped(text, "-D")


def consumed(
    value: bytes | None,
    key: bytes | None = None,
    headers: list[tuple[str, bytes | None]] | None = None,
) -> ConsumedRecord:
    return ConsumedRecord(TopicPartition("t", 3), Record(42, 1_000, key, value, headers or []))


class TestFormats:
    def test_every_field(self) -> None:
        record = consumed(b"value", b"key", [("a", b"1"), ("n", None)])
        write = formatter("%t [%p] at %o %T: %K %k %S %s %v %h %R%%\\n\\x41", show_null=False)
        assert write(record) == (
            b"t [3] at 42 1000: 3 key 5 value value a=1,n=NULL \x00\x00\x00\x05%\nA"
        )

    def test_null_is_nothing_or_its_name_and_has_a_size_of_its_own(self) -> None:
        assert formatter("%k|%s|%K|%S", show_null=False)(consumed(None)) == b"||-1|-1"
        assert formatter("%k|%s", show_null=True)(consumed(None)) == b"NULL|NULL"

    @given(st.binary())
    def test_bytes_come_out_as_they_are(self, value: bytes) -> None:
        assert formatter(plain_format("\\n", None), show_null=False)(consumed(value)) == (
            value + b"\n"
        )

    def test_plainly_keys_are_written_where_their_delimiter_is_given(self) -> None:
        text = plain_format("\\t%", "%:")
        assert formatter(text, show_null=False)(consumed(b"v", b"k")) == b"k%:v\t%"

    @given(st.none() | st.binary(), st.none() | st.text().map(str.encode), st.none() | st.binary())
    def test_json_holds_any_bytes_in_one_line(
        self, value: bytes | None, key: bytes | None, header: bytes | None
    ) -> None:
        line = json_line(consumed(value, key, [("h", header)]))
        assert line.count(b"\n") == 1
        document = json.loads(line)
        check(document, documents.RecordDocument)
        assert document["key"] == (None if key is None else key.decode())

    def test_json_of_what_is_no_text_is_base64(self) -> None:
        assert json.loads(json_line(consumed(b"\xff\x00")))["value"] == {"base64": "/wA="}


class TestPlaces:
    @pytest.mark.parametrize(
        ("word", "expected"),
        [
            ("beginning", Where(timestamp=EARLIEST)),
            ("end", Where(timestamp=LATEST)),
            ("stored", Where(is_stored=True)),
            ("42", Where(offset=42)),
            ("-10", Where(tail=10)),
            ("s@1700000000000", Where(timestamp=1_700_000_000_000)),
            ("s@1970-01-01T00:00:01", Where(timestamp=1_000)),
        ],
    )
    def test_to_begin(self, word: str, expected: Where) -> None:
        assert parse_span([word], BEGINNING).start == expected

    def test_to_end_go_with_or_without_one_to_begin(self) -> None:
        span = parse_span(["e@5", "s@3"], BEGINNING)
        assert (span.start, span.end_timestamp) == (Where(timestamp=3), 5)
        assert parse_span(["e@5"], BEGINNING).start == BEGINNING
        with pytest.raises(typer.BadParameter, match="one start and one e@ end"):
            parse_span(["e@5", "e@6"], BEGINNING)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("5", 5),
            ("1970-01-02", 86_400_000),
            ("1970-01-01T01:00+01:00", 0),
            ("1970-01-01T00:00:00.5Z", 500),
        ],
    )
    def test_times(self, text: str, expected: int) -> None:
        assert timestamp_ms(text) == expected

    @pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999", "1960-01-01"])
    def test_a_time_before_1970_is_not_the_end_of_the_log(self, text: str) -> None:
        """-1 is the end in ListOffsets."""
        assert parse_span([f"s@{text}", f"e@{text}"], BEGINNING) == ReadSpan(Where(timestamp=0), 0)
        assert reset_to(to_datetime=text) == ResetPlan(timestamp=0)
        assert reset_to(by_duration="P40000D") == ResetPlan(timestamp=0)

    def test_a_time_beyond_64_bits_is_the_last_one(self) -> None:
        last = 2**63 - 1
        assert parse_span([f"s@{10**20}"], BEGINNING).start == Where(timestamp=last)
        assert reset_to(to_datetime=str(10**20)) == ResetPlan(timestamp=last)
        assert reset_to(by_duration="PT-9223372036854775S") == ResetPlan(timestamp=last)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("PT1H30M", 5_400_000),
            ("P2D", 172_800_000),
            ("90m", 5_400_000),
            ("1d2h3m4s", 93_784_000),
        ],
    )
    def test_durations(self, text: str, expected: int) -> None:
        assert duration_ms(text) == expected

    @pytest.mark.parametrize("text", ["", "P", "PT", "1", "1w", "PT1H1D"])
    def test_no_durations(self, text: str) -> None:
        with pytest.raises(typer.BadParameter, match="is no duration"):
            duration_ms(text)


def test_headers_are_printed_as_they_were_produced() -> None:
    headers = [("k\udcff", b"\xfe=\x00"), ("k", None)]
    batch = build_batch([NewRecord(None, b"v", 1, headers)])
    assert b"k\xff" in batch
    [record], _ = read_records(memoryview(batch), 0)
    read = ConsumedRecord(TopicPartition("t", 0), record)
    assert formatter("%h", False)(read) == b"k\xff=\xfe=\x00,k=NULL"
    assert json.loads(json_line(read))["headers"][0]["key"] == "k\ufffd"


class TestNames:
    def test_partitions_of_a_topic(self) -> None:
        assert partition_word("t") == PartitionWord("t", None)
        assert partition_word("t:0,2-4,2") == PartitionWord("t", (0, 2, 3, 4))

    @pytest.mark.parametrize("text", ["", "a", "1,", "1-", "-1", "1--2"])
    def test_no_partitions(self, text: str) -> None:
        with pytest.raises(typer.BadParameter, match="are no partitions"):
            partition_numbers(text)

    @pytest.mark.parametrize(
        ("name", "known", "expected"),
        [
            ("fligts", ["flights", "trains", "x", "y"], "; did you mean flights?"),
            ("FLIGHTS", ["my-flights", "a", "b", "c"], "; did you mean my-flights?"),
            ("zzz", ["a", "b"], "; there is a, b"),
            ("zzz", [], "; there are none"),
            ("zzz", list("abcdefg"), ""),
        ],
    )
    def test_what_was_meant(self, name: str, known: list[str], expected: str) -> None:
        assert nearest(name, known) == expected
