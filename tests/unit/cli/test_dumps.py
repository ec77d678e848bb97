"""`tidelog dump-log`: every kind of file, and the place of damage in a damaged one."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli import run

from tidelog.log.index import OffsetIndex, TimeIndex
from tidelog.log.producer_state import ProducerState
from tidelog.records import compression
from tidelog.records.batch import BatchView
from tidelog.records.builder import NewRecord, Producer, build_batch

SEGMENT = "00000000000000000100.log"


def segment(directory: Path, *batches: bytes | bytearray) -> Path:
    path = directory / SEGMENT
    path.write_bytes(b"".join(batches))
    return path


def batch(base_offset: int, *values: bytes, codec: int = compression.NONE) -> bytearray:
    records = [NewRecord(b"k", value, 1000, [("h", b"v")]) for value in values]
    return build_batch(
        records,
        codec=codec,
        base_offset=base_offset,
        leader_epoch=7,
        producer=Producer(9, 1, 0),
    )


class Dump:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, path: Path, *words: str, code: int = 0) -> dict[str, Any]:
        assert run(self._monkeypatch, "dump-log", str(path), "-o", "json", *words) == code
        self.output = self._capsys.readouterr()
        document: dict[str, Any] = json.loads(self.output.out)
        return document


@pytest.fixture
def dump(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Dump:
    return Dump(monkeypatch, capsys)


def test_a_segment_is_shown_batch_by_batch(tmp_path: Path, dump: Dump) -> None:
    first, second = batch(100, b"a", b"b"), batch(102, b"c", codec=compression.ZSTD)
    document = dump(segment(tmp_path, first, second))
    assert document["damage"] is None
    one, two = document["entries"]
    assert (one["position"], one["base_offset"], one["last_offset"]) == (0, 100, 101)
    assert (one["leader_epoch"], one["producer_id"], one["records"]) == (7, 9, 2)
    assert (two["position"], two["base_offset"]) == (len(first), 102)
    assert (one["compression"], two["compression"]) == ("none", "zstd")
    assert one["crc"] == f"{BatchView(first).crc:08x}"


def test_records_follow_their_batch_on_demand(tmp_path: Path, dump: Dump) -> None:
    path = segment(tmp_path, batch(100, "é".encode(), b"\xff", codec=compression.GZIP))
    entries = dump(path, "--records")["entries"]
    assert [entry.get("value") for entry in entries[1:]] == ["é", "b'\\xff'"]
    assert entries[1]["offset"] == 100
    assert entries[1]["headers"] == {"h": "v"}


def test_a_table_holds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = segment(tmp_path, batch(100, b"hello"))
    assert run(monkeypatch, "dump-log", str(path), "--records") == 0
    printed = capsys.readouterr().out
    assert "leader epoch" in printed
    assert "hello" in printed


def test_a_flipped_bit_is_found_and_what_is_before_it_shown(tmp_path: Path, dump: Dump) -> None:
    good, bad = batch(100, b"a"), batch(101, b"b")
    bad[-3] ^= 1
    document = dump(segment(tmp_path, good, bad, batch(102, b"c")), code=1)
    assert [entry["base_offset"] for entry in document["entries"]] == [100]
    assert f"record batch at byte {len(good)}: CRC is" in document["damage"]
    assert str(tmp_path / SEGMENT) in dump.output.err


def test_half_a_batch_at_the_end_is_found(tmp_path: Path, dump: Dump) -> None:
    good = batch(100, b"a")
    document = dump(segment(tmp_path, good, batch(101, b"b")[:-5]), code=1)
    assert len(document["entries"]) == 1
    assert f"from byte {len(good)} on are no whole batch" in document["damage"]


def test_records_that_cannot_be_read_are_damage_too(tmp_path: Path, dump: Dump) -> None:
    whole = batch(100, b"a", codec=compression.GZIP)
    view = BatchView(whole)
    whole[70:80] = bytes(10)
    struct.pack_into(">I", whole, 17, view.computed_crc())
    path = segment(tmp_path, whole)
    assert dump(path)["damage"] is None
    assert "record batch at byte 0" in dump(path, "--records", code=1)["damage"]


def test_an_empty_segment_is_fine(tmp_path: Path, dump: Dump) -> None:
    assert dump(segment(tmp_path))["entries"] == []


def test_indexes_are_shown_with_whole_offsets(tmp_path: Path, dump: Dump) -> None:
    segment(tmp_path, bytes(500))
    offsets, times = OffsetIndex(100), TimeIndex(100)
    offsets.append(120, 300)
    times.append(5000, 120)
    index = tmp_path / SEGMENT.replace(".log", ".index")
    index.write_bytes(offsets.to_bytes())
    assert dump(index)["entries"] == [{"offset": 120, "position": 300}]
    timeindex = tmp_path / SEGMENT.replace(".log", ".timeindex")
    timeindex.write_bytes(times.to_bytes())
    assert dump(timeindex)["entries"] == [{"timestamp": 5000, "offset": 120}]


def test_an_index_that_points_behind_its_segment_is_damaged(tmp_path: Path, dump: Dump) -> None:
    segment(tmp_path, bytes(200))
    offsets = OffsetIndex(100)
    offsets.append(120, 300)
    index = tmp_path / SEGMENT.replace(".log", ".index")
    index.write_bytes(offsets.to_bytes())
    assert "points at byte 300" in dump(index, code=1)["damage"]


def test_a_producer_snapshot(tmp_path: Path, dump: Dump) -> None:
    state = ProducerState()
    state.append(BatchView(batch(100, b"a", b"b")), 0)
    path = tmp_path / "00000000000000000102.snapshot"
    path.write_bytes(state.to_snapshot())
    (entry,) = dump(path)["entries"]
    assert (entry["producer_id"], entry["last_offset"], entry["last_sequence"]) == (9, 101, 1)
    path.write_bytes(state.to_snapshot()[:-1])
    assert "CRC" in dump(path, code=1)["damage"]


def test_a_directory_and_what_no_log_directory_holds_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    segment(tmp_path, batch(100, b"a"))
    for place, told in {
        str(tmp_path): f"{tmp_path} is a directory: name a file in it, such as {SEGMENT}",
        "/etc/passwd": "/etc/passwd is no file of a log directory: those are *.log *.index ",
        str(tmp_path / "no.log"): f"{tmp_path / 'no.log'}: No such file or directory",
        str(tmp_path / "no"): f"{tmp_path / 'no'}: No such file or directory",
    }.items():
        assert run(monkeypatch, "dump-log", place) == 1
        output = capsys.readouterr()
        assert output.out == "" and output.err.startswith(f"tidelog: {told}")


def test_checkpoints_are_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text("0\n1\n3 100\n")
    assert run(monkeypatch, "dump-log", str(path)) == 0
    assert capsys.readouterr().out == "0\n1\n3 100\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("notes.index", b"", "does not begin with an offset"),
        ("meta.properties", b"\xff\xd8\xff", "text is expected"),
    ],
)
def test_files_that_are_not_what_their_name_says_are_told(
    tmp_path: Path, dump: Dump, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert message in dump(tmp_path / name, code=1)["damage"]


def test_a_file_that_is_not_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "dump-log", str(tmp_path / "nowhere.log")) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert "nowhere.log" in output.err
