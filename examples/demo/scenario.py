"""The demo's faults: SIGKILL of a leader, restart, full ISRs, SIGKILL of the controller, restart.

Each phase gets its share of the records. The producer may not run ahead of the faults, so that the
numbers before, between and after the kills mean something on a slow machine, too. Every wait has a
limit; reaching the limit is an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from examples.demo.observing import Observer
from examples.demo.plot import Moment
from examples.demo.producing import FlightProducer
from examples.demo.story import Bar, Story

from tidelog.core.errors import TidelogError
from tidelog.local import LocalCluster

#: Shares of all records: a kill strikes when its share is acknowledged, and before a kill the
#: producer sends no more than its cap.
_KILL_LEADER_AT: Final = 0.25
_CAP_BEFORE_LEADER: Final = 0.35
_KILL_CONTROLLER_AT: Final = 0.6
_CAP_BEFORE_CONTROLLER: Final = 0.75
#: Time that a killed broker stays away: meanwhile others must lead, and ISRs shrink.
_AWAY_S: Final = 2.0
_PATIENCE_S: Final = 90.0
_POLL_S: Final = 0.05


class ScenarioError(TidelogError):
    """The error of a step that did not happen in time."""


@dataclass(slots=True)
class Scenario:
    """A runner of the faults while the producer works."""

    cluster: LocalCluster
    producer: FlightProducer
    observer: Observer
    story: Story
    bar: Bar
    topic: str
    total: int
    moments: list[Moment] = field(default_factory=list)

    def run(self) -> None:
        """Run until all records are acknowledged. Raises ScenarioError and others."""
        self.producer.cap = int(self.total * _CAP_BEFORE_LEADER)
        self._until("the first quarter", lambda: self._share() >= _KILL_LEADER_AT)
        self._kill_leader()
        self._until("enough between the kills", lambda: self._share() >= _KILL_CONTROLLER_AT)
        self._kill_controller()
        self._until("the last acknowledgement", lambda: self.producer.finished)
        self.story.line(f"all {self.total:,} records acknowledged")

    def _kill_leader(self) -> None:
        seen = self.observer.latest()
        if seen is None:
            raise ScenarioError("no metadata of the topic has been seen")
        partition = next(
            (n for n, leader in enumerate(seen.leaders) if leader != seen.controller), 0
        )
        victim = seen.leaders[partition]
        led = sum(leader == victim for leader in seen.leaders)
        self.story.line(
            f"SIGKILL broker {victim}, leader of {self.topic}-{partition} and"
            f" {led - 1} more; {self.producer.acknowledged:,} acknowledged so far",
            style="red",
        )
        self._kill(victim, f"kill leader {victim}")
        # The kill has struck in time: what the producer sends now belongs to the next phase.
        self.producer.cap = int(self.total * _CAP_BEFORE_CONTROLLER)
        self._until(
            "new leaders", lambda: self._now_led_by_others(victim), report=self._report_leaders
        )
        self._return_of(victim)

    def _kill_controller(self) -> None:
        seen = self.observer.latest()
        if seen is None or seen.controller < 0:
            raise ScenarioError("the cluster shows no controller to kill")
        victim = seen.controller
        self.story.line(
            f"SIGKILL broker {victim}, the controller;"
            f" {self.producer.acknowledged:,} acknowledged so far",
            style="red",
        )
        self._kill(victim, f"kill controller {victim}")
        self.producer.cap = self.total
        self._until(
            "another controller and leaders",
            lambda: self._another_controller(victim) and self._now_led_by_others(victim),
            report=self._report_controller,
        )
        self._return_of(victim)

    def _kill(self, victim: int, text: str) -> None:
        self.moments.append(Moment(time.monotonic(), text, is_kill=True))
        self.cluster.kill(victim)

    def _return_of(self, victim: int) -> None:
        away_since = self.moments[-1].at
        self._until("the victim to be away", lambda: time.monotonic() > away_since + _AWAY_S)
        self.cluster.start(victim)
        back_at = time.monotonic()
        self.moments.append(Moment(back_at, f"restart {victim}", is_kill=False))
        self.story.line(f"broker {victim} is back", style="green")
        self._until("full ISRs", lambda: self.observer.all_in_sync_since(back_at))
        took = time.monotonic() - back_at
        self.story.line(f"all ISRs are full again {took:.1f} s later")

    # -- conditions -----------------------------------------------------------------------------

    def _share(self) -> float:
        return self.producer.acknowledged / self.total

    def _now_led_by_others(self, victim: int) -> bool:
        seen = self.observer.latest()
        return (
            seen is not None
            and seen.at > self.moments[-1].at
            and victim not in seen.leaders
            and min(seen.leaders) >= 0
        )

    def _another_controller(self, victim: int) -> bool:
        seen = self.observer.latest()
        return seen is not None and seen.controller not in (-1, victim)

    def _report_leaders(self) -> None:
        after = time.monotonic() - self.moments[-1].at
        self.story.line(f"every partition has a live leader again after {after:.1f} s")

    def _report_controller(self) -> None:
        seen, after = self.observer.latest(), time.monotonic() - self.moments[-1].at
        if seen is not None:
            self.story.line(
                f"broker {seen.controller} is the controller, every partition has a live leader"
                f" after {after:.1f} s"
            )

    def _until(
        self, what: str, condition: Callable[[], bool], report: Callable[[], None] | None = None
    ) -> None:
        """Wait for a condition while the bar moves; then call `report`."""
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            self.producer.check()
            self._show()
            if time.monotonic() > deadline:
                raise ScenarioError(
                    f"waited {_PATIENCE_S:.0f} s for {what}; {self.producer.acknowledged:,} of"
                    f" {self.total:,} acknowledged; last seen: {self.observer.latest()}"
                )
            time.sleep(_POLL_S)
        self._show()
        if report is not None:
            report()

    def _show(self) -> None:
        seen = self.observer.latest()
        note = "" if seen is None else f"ISR {min(seen.isr_sizes)}-{max(seen.isr_sizes)}"
        self.bar.at(self.producer.acknowledged, note)
