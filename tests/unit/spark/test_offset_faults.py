"""Offsets that files lack or have twice: compared with a count of each offset."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.pipelines.offset_faults import (
    FileSpan,
    OffsetFault,
    OffsetFaultKind,
    offset_faults,
)

MISSING, DOUBLED = OffsetFaultKind.MISSING, OffsetFaultKind.DOUBLED


def test_files_that_follow_each_other_have_no_fault() -> None:
    assert offset_faults([]) == []
    assert offset_faults([FileSpan("b", 0, 10, 20), FileSpan("a", 0, 0, 10)]) == []


def test_a_gap_names_the_files_on_both_sides() -> None:
    spans = [FileSpan("a", 1, 0, 10), FileSpan("b", 1, 15, 20), FileSpan("c", 0, 3, 4)]
    assert offset_faults(spans) == [OffsetFault(MISSING, 1, 10, 15, ("a", "b"))]


def test_a_file_that_was_added_twice_names_both_copies() -> None:
    spans = [FileSpan("a", 0, 0, 10), FileSpan("copy", 0, 0, 10), FileSpan("b", 0, 10, 20)]
    assert offset_faults(spans) == [OffsetFault(DOUBLED, 0, 0, 10, ("a", "copy"))]


def test_rows_that_a_file_repeats_name_the_file() -> None:
    assert offset_faults([FileSpan("a", 0, 0, 10), FileSpan("a", 0, 4, 5, doubled=2)]) == [
        OffsetFault(DOUBLED, 0, 4, 5, ("a",))
    ]
    assert offset_faults([FileSpan("a", 0, 0, 10, doubled=3)]) == [
        OffsetFault(DOUBLED, 0, 0, 10, ("a",), is_exact=False)
    ]


def test_many_copies_of_a_file_are_one_fault() -> None:
    copies = [FileSpan(f"copy-{number}", 0, 0, 10) for number in range(100)]
    [fault] = offset_faults(copies)
    assert (fault.start, fault.end, len(fault.files)) == (0, 10, 100)


def test_neighbouring_spans_of_the_same_two_files_are_one_fault() -> None:
    spans = [FileSpan("a", 0, 0, 100), FileSpan("b", 0, 10, 20), FileSpan("b", 0, 20, 30)]
    assert offset_faults(spans) == [OffsetFault(DOUBLED, 0, 10, 30, ("a", "b"))]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.integers(1, 10)), max_size=12)
)
def test_the_faults_are_those_of_a_count(drawn: list[tuple[str, int, int]]) -> None:
    spans = [FileSpan(name, 0, start, start + size) for name, start, size in drawn]
    counts = Counter(offset for span in spans for offset in range(span.start, span.end))
    faults = offset_faults(spans)
    missing = {
        offset
        for fault in faults
        if fault.kind is MISSING
        for offset in range(fault.start, fault.end)
    }
    doubled = {
        offset
        for fault in faults
        if fault.kind is DOUBLED
        for offset in range(fault.start, fault.end)
    }
    whole = range(min(counts), max(counts) + 1) if counts else range(0)
    assert missing == {offset for offset in whole if not counts[offset]}
    assert doubled == {offset for offset, count in counts.items() if count > 1}
    for fault in faults:
        if fault.kind is DOUBLED:
            holders = {
                span.file for span in spans if span.start < fault.end and fault.start < span.end
            }
            assert set(fault.files) == holders
