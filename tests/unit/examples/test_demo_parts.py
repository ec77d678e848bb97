"""The demo's parts: its data, what it counts as a change, what it expects, how it tells."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from examples.demo import flights
from examples.demo.command import Measured
from examples.demo.flights import COLUMNS, TOTAL, FlightsError, read_flights
from examples.demo.observing import Observer, Sample
from examples.demo.plot import Moment, draw
from examples.demo.producing import FlightProducer
from examples.demo.scenario import Scenario
from examples.demo.story import Story
from rich.console import Console


class TestFlights:
    def test_a_message_is_json_with_missing_values_as_null(self) -> None:
        first = next(read_flights())
        fields = json.loads(first.value)
        assert list(fields) == [column.split()[0] for column in COLUMNS.split(",")]
        assert (fields["seq"], fields["carrier"], fields["dep_delay"]) == (0, "UA", 2)
        cancelled = json.loads(next(islice(read_flights(), 838, None)).value)
        assert (cancelled["dep_time"], cancelled["tailnum"]) == (None, "N18120")

    def test_without_the_package_the_error_says_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(flights, "PACKAGE", "nycflights_nowhere")
        with pytest.raises(FlightsError, match="pip install nycflights_nowhere"):
            next(read_flights())


class TestObserving:
    def observed(self, *samples: tuple[int, tuple[int, ...], tuple[int, ...]]) -> Observer:
        observer = Observer("127.0.0.1:1", "t", 3)
        observer.samples = [Sample(float(n), *each) for n, each in enumerate(samples)]
        return observer

    def test_changes_are_counted_between_known_leaders(self) -> None:
        observer = self.observed(
            (1, (1, 2), (3, 3)), (-1, (-1, 2), (2, 2)), (2, (3, 2), (2, 2)), (2, (1, 3), (3, 3))
        )
        assert observer.leader_changes() == 3
        assert observer.controller_changes() == 1

    def test_a_leader_that_comes_back_is_no_change(self) -> None:
        observer = self.observed((1, (1,), (3,)), (1, (-1,), (2,)), (1, (1,), (3,)))
        assert observer.leader_changes() == 0

    @pytest.mark.parametrize(
        ("sample", "full"),
        [
            ((1, (1, 2), (3, 3)), True),
            ((1, (1, 2), (3, 2)), False),
            ((1, (1, -1), (3, 3)), False),
            ((-1, (1, 2), (3, 3)), False),
        ],
    )
    def test_in_sync_means_every_partition_led_and_full(
        self, sample: tuple[int, tuple[int, ...], tuple[int, ...]], full: bool
    ) -> None:
        observer = self.observed(sample)
        assert observer.all_in_sync_since(-1.0) is full
        assert not observer.all_in_sync_since(0.0)


class Scripted(Scenario):
    """A scenario of which only the order of its acts counts; each act notes the producer's cap."""

    def __init__(self) -> None:
        self.caps: list[tuple[str, int]] = []
        latest = Sample(1.0, 2, (1, 2), (3, 3))
        super().__init__(
            cluster=cast(Any, SimpleNamespace(kill=lambda _: self.note("kill"), start=self.back)),
            producer=cast(Any, SimpleNamespace(cap=0, acknowledged=0, finished=True)),
            observer=cast(Any, SimpleNamespace(latest=lambda: latest)),
            story=Story(),
            bar=cast(Any, None),
            topic="t",
            total=100,
        )

    def note(self, act: str) -> None:
        self.caps.append((act, self.producer.cap))

    def back(self, _: int) -> None:
        self.note("restart")

    def _until(
        self, what: str, condition: Callable[[], bool], report: Callable[[], None] | None = None
    ) -> None:
        self.note(what)


class TestTheProducersCap:
    """The scenario's own limit must not look like an outage of the cluster."""

    def test_it_is_raised_with_each_kill_and_not_when_the_broker_is_back(self) -> None:
        scenario = Scripted()
        scenario.run()
        caps = dict(reversed(scenario.caps))
        assert caps["the first quarter"] == 35
        assert caps["new leaders"] == caps["the victim to be away"] == 75
        assert caps["enough between the kills"] == 75
        assert caps["another controller and leaders"] == caps["the last acknowledgement"] == 100
        assert [cap for act, cap in scenario.caps if act == "restart"] == [75, 100]

    def test_the_producer_knows_when_it_was_held_back(self) -> None:
        producer = FlightProducer("127.0.0.1:1", "t", iter(()), 100, 1.0)
        producer.began_at = time.monotonic() - 50.0  # all records are due by the pace
        producer.cap = producer.sent = 35
        assert list(producer._due()) == []
        assert list(producer._due()) == []
        [(start, end)] = producer.held
        assert start <= end
        producer.cap = producer.sent = 100
        assert list(producer._due()) == []
        assert len(producer.held) == 1, "nothing is left to send: that is no pause"

    def test_a_pause_is_drawn_as_what_it_is(self, tmp_path: Path) -> None:
        path = tmp_path / "demo.svg"
        draw(str(path), 0.0, [0.1, 3.0], [], [], 3, [(1.0, 2.5)])
        assert "the scenario holds the producer back" in path.read_text()
        draw(str(path), 0.0, [0.1, 3.0], [], [], 3, [(1.0, 1.01)])
        assert "holds the producer back" not in path.read_text()


class TestExpectations:
    def rows(self, **changed: object) -> dict[str, bool]:
        values: dict[str, Any] = {
            "phases": (100_000, 100_000, 136_776),
            "leader_changes": 2,
            "controller_changes": 1,
            "slowest_s": 1.5,
            "seconds": 34.0,
            "acknowledged": TOTAL,
            "distance": 1,
        }
        measured = Measured(**{**values, **changed})
        return {name: holds for name, _, _, holds in measured.rows()}

    def test_a_good_run_meets_them_all(self) -> None:
        assert all(self.rows().values())

    @pytest.mark.parametrize(
        ("changed", "missed"),
        [
            ({"phases": (10_000, 190_000, 136_776)}, "acknowledged before the first kill"),
            ({"phases": (190_000, 10_000, 136_776)}, "acknowledged between the kills"),
            ({"phases": (190_000, 136_776, 10_000)}, "acknowledged after the second kill"),
            ({"acknowledged": TOTAL - 1}, "acknowledged in all"),
            ({"leader_changes": 1}, "leader changes"),
            ({"controller_changes": 0}, "controller changes"),
            ({"seconds": 29.9}, "producing took"),
        ],
    )
    def test_each_one_can_be_missed(self, changed: dict[str, object], missed: str) -> None:
        assert [name for name, holds in self.rows(**changed).items() if not holds] == [missed]


class TestStory:
    def test_without_a_terminal_bars_become_lines(self) -> None:
        out = io.StringIO()
        story = Story(Console(file=out, width=100, highlight=False))
        story.title("title")
        story.chapter("first")
        with story.bar("things", 1000) as bar:
            for done in range(0, 1001, 10):
                bar.at(done, "fine")
        story.table([("name", "1", "2 or more")])
        story.verdict("done", good=True)
        lines = out.getvalue().splitlines()
        assert "1. first" in lines
        assert sum("of 1,000 things  fine" in line for line in lines) == 8
        assert lines[-1] == "done"
        assert "\x1b" not in out.getvalue()

    def test_with_a_terminal_there_is_a_bar(self) -> None:
        out = io.StringIO()
        story = Story(Console(file=out, width=100, force_terminal=True))
        with story.bar("things", 10) as bar:
            bar.at(5)
            story.line("meanwhile")
        assert "meanwhile" in out.getvalue()


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    path = tmp_path / "demo.png"
    samples = [Sample(10.0 + n / 10, 1, (1, 2), (3, 3 - n % 2)) for n in range(50)]
    moments = [Moment(11.0, "kill leader 1", True), Moment(13.0, "restart 1", False)]
    draw(str(path), 10.0, [10.0 + n / 100 for n in range(500)] + [0.0], samples, moments, 3)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 10_000
