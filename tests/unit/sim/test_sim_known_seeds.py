"""The file of known seeds: read whole or refused, with the line and what would be right."""

from __future__ import annotations

import pytest

from tidelog.sim.known_seeds import KnownSeed, SeedsFileError, line_to_add, read_seeds

FIRST = "# known seeds, version 1"
PROFILES = ("default", "late_isr", "late_commands")
FAULTS = ("crash_leader", "slow_link")


def read(*lines: str) -> list[KnownSeed]:
    return read_seeds(lines, "seeds.txt", PROFILES, FAULTS)


def test_every_seed_is_read_with_its_cause() -> None:
    lines = (FIRST, "# a remark", "", "default 20  # lost", "late_isr 3 faults=slow_link # told #2")
    assert read(*lines) == [
        KnownSeed("default", 20, "lost"),
        KnownSeed("late_isr", 3, "told #2", ("slow_link",)),
    ]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], "seeds.txt is empty: its first line should be '# known seeds, version 1'"),
        (["default 1 # x"], "seeds.txt, line 1: no version; the first line of a file of this"),
        (["# known seeds, version 0"], "line 1: version 0 is not known; this program reads ver"),
        (["# known seeds, version 2"], "line 1: version 2 is not known"),
        ([FIRST, "default 1"], "line 2: 'default 1' has no cause; PROFILE SEED"),
        ([FIRST, "default 1 #  "], "line 2: 'default 1 #' has no cause"),
        ([FIRST, "default # x"], "line 2: 'default' is not of the form PROFILE SEED"),
        ([FIRST, "default 1 2 # x"], "line 2: 'default 1 2' is not of the form"),
        ([FIRST, "default -1 # x"], "line 2: '-1' is no seed; a whole number from 0 is"),
        ([FIRST, "", "late_is 1 # x"], "line 3: no profile 'late_is'; there are late_isr, late_c"),
        ([FIRST, "default 1 faults=slow_lnk # x"], "line 2: no fault 'slow_lnk'; there are slow_"),
        ([FIRST, "default 1 # x", "default 1 # y"], "line 3: as line 2; one line a seed"),
    ],
)
def test_a_wrong_line_is_named(lines: list[str], told: str) -> None:
    with pytest.raises(SeedsFileError) as refused:
        read(*lines)
    assert told in str(refused.value)


def test_the_line_to_add_is_one_that_is_read() -> None:
    line = line_to_add("late_isr", 7, ("slow_link",), f"1.5 s: steady-0: gone\n{'x' * 500}")
    assert line == "late_isr 7 faults=slow_link  # steady-0: gone"
    assert read(FIRST, line) == [KnownSeed("late_isr", 7, "steady-0: gone", ("slow_link",))]
    long = line_to_add("default", 7, (), "1.5 s: " + "long " * 99)
    assert read(FIRST, long)[0].cause.endswith("...") and len(long) < 140
