"""Times and durations of `groups reset` are those of kafka-consumer-groups, by its own classes."""

from __future__ import annotations

import random
import subprocess

import pytest
import typer
from tests.support.clients.absent import Absent
from tests.support.clients.jars import HERE, compiled, jars_of_kafka

from tidelog.cli.times import duration_ms, timestamp_ms

VERSION = "3.9.2"
PATIENCE_S = 60.0


def oracle(lines: list[str]) -> list[int | None]:
    """Kafka's readings; None for a text that it refuses. Skips the test without Kafka."""
    try:
        jars = jars_of_kafka(VERSION)
        classes = compiled(HERE / "TimesOracle.java", jars)
    except Absent as absent:
        pytest.skip(f"Kafka's classes: {absent}")
    java = [
        "java",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Xmx256m",
        "-Duser.timezone=UTC",
    ]
    ended = subprocess.run(
        [*java, "-cp", f"{classes}:{jars}/*", "TimesOracle"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return [None if each == "refused" else int(each) for each in ended.stdout.split()]


def ours(kind: str, text: str) -> int | None:
    try:
        return timestamp_ms(text) if kind == "t" else -duration_ms(text, signed=True)
    except typer.BadParameter:
        return None


def durations(draw: random.Random) -> list[str]:
    """Durations, right and wrong."""
    found = [
        "P",
        "PT",
        "P1DT",
        "T1H",
        "1H",
        "P1H",
        "PT1D",
        "P1W",
        "P1Y",
        "P1M",
        "PT1.5M",
        "",
        " P1D",
    ]
    found += ["PT.5S", "PT1.S", "PT1,5S", "PT-0.5S", "-PT-1.25S", "PT0.0000000001S", "P1DPT1H"]
    found += [
        "PT9223372036854775808S",
        "P106751991167301D",
        "pt1h",
        "PT1S ",
    ]
    for _ in range(400):
        text = draw.choice(("", "", "-", "+")) + draw.choice("PPPPp")
        for unit in ("D", "T", "H", "M", "S"):
            if draw.random() < 0.55:
                number = draw.choice(("", "", "-", "+")) + str(draw.randrange(100))
                fraction = draw.choice(("", "", ".5", ".000001", ",25")) if unit == "S" else ""
                text += (
                    "T" if unit == "T" else number + fraction + draw.choice((unit, unit.lower()))
                )
        found.append(text)
    return found


def times(draw: random.Random) -> list[str]:
    """Times, right and wrong, that have three digits of a second as Kafka expects them."""
    found = ["2026-02-29T00:00:00.000", "2024-02-29T23:59:59.999Z", "2026-13-01T00:00:00.000"]
    found += ["2026-01-01T24:00:00.000", "2026-01-01T00:60:00.000Z", "2026-01-01t00:00:00.000"]
    for _ in range(400):
        day = f"{draw.randrange(1, 9999):04}-{draw.randrange(14):02}-{draw.randrange(33):02}"
        if draw.random() < 0.1:
            day = f"2026-{draw.randrange(1, 9)}-{draw.randrange(1, 9)}"
        clock = f"{draw.randrange(25):02}:{draw.randrange(61):02}:{draw.randrange(61):02}"
        zone = draw.choice(
            (
                "",
                "",
                "Z",
                "+08:00",
                "-03:30",
                "+08",
                "-11",
                "+14:00",
                "+15:00",
                "-14:00",
                "+0800",
                "+24:00",
            )
        )
        found.append(f"{day}T{clock}.{draw.randrange(1000):03}{zone}")
    return [each for each in found if "1582" not in each[:4]]


def test_durations_are_those_of_java() -> None:
    texts = durations(random.Random(18))
    kafkas = oracle([f"d{text}" for text in texts])
    read = [ours("d", text) for text in texts]
    # Read here besides: they are no ISO 8601.
    short = {"1H"}
    assert [
        (text, one, other)
        for text, one, other in zip(texts, read, kafkas, strict=True)
        if one != other and text not in short
    ] == []
    assert sum(each is not None for each in kafkas) > 100


def test_times_are_those_of_kafka() -> None:
    texts = times(random.Random(18))
    kafkas = oracle([f"t{text}" for text in texts])
    read = [ours("t", text) for text in texts]
    assert [
        (text, one, other)
        for text, one, other in zip(texts, read, kafkas, strict=True)
        if one != other and not is_julian(text)
    ] == []
    assert sum(each is not None for each in kafkas) > 100


def is_julian(text: str) -> bool:
    """Whether a day is before October 1582: Java counts those by the Julian calendar."""
    return text[:4] < "1583"


def test_other_forms_mean_what_iso_8601_says() -> None:
    read = {text: timestamp_ms(f"1970-01-01T{text}") for text in ("00:00:00.5Z", "00:00:00.5")}
    assert set(read.values()) == {500}
    assert timestamp_ms("1970-01-01T00:00:00.000+0530") == -19_800_000
    assert timestamp_ms("1970-01-02") == timestamp_ms("19700102T00:00") == 86_400_000
    assert timestamp_ms("1970-01-01 00:01") == 60_000
    for text in ("1970-01-01T00:00:00.000Zx", "1970-01", "1970-0102", "yesterday", "1970-01-01T1"):
        with pytest.raises(typer.BadParameter, match="is no time"):
            timestamp_ms(text)


def test_a_duration_below_0_is_a_usage_error_where_it_makes_no_sense() -> None:
    assert duration_ms("-PT1S", signed=True) == -1_000
    with pytest.raises(typer.BadParameter, match="below 0"):
        duration_ms("-PT1S")
