"""The schedule of leader rebalancing: when a controller checks preferred replicas (V46).

`elections/balance` decides which leaderships return to preferred replicas, and which brokers must
catch up first. This module sets the timers for leader rebalancing. The first check of preferred
replicas comes soon after the controller's election, and later checks follow at each interval. While
leaderships still have to return to preferred replicas, the controller takes one rebalancing step
per second. The schedule ends with the controller's term.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from tidelog.broker.services import Services
from tidelog.controller.elections.balance import Balance
from tidelog.controller.elections.preferred import RebalanceDue, RebalanceStepDue
from tidelog.controller.events import Event

#: Milliseconds that a new controller lets the cluster settle before the first check (Kafka: 5 s).
_FIRST_LOOK_MS: Final = 5_000
#: Pause between two rebalancing steps, in milliseconds; clients find the new leaders in the pause.
_STEP_MS: Final = 1_000
#: An imbalance percentage for the time when automatic rebalancing is off: no broker exceeds it, so
#: no leadership returns to a preferred replica.
_EVERYTHING: Final = 100


class Balancing:
    """The rebalancing schedule of one controller term."""

    def __init__(
        self, services: Services, balance: Balance, offer: Callable[[Event], None]
    ) -> None:
        self._services = services
        self._balance = balance
        self._offer = offer
        self._is_over = False
        #: Whether the next rebalancing step is already scheduled.
        self._is_due = False
        self._held_back: tuple[int, ...] = ()

    def begin(self) -> None:
        """Schedule the first check, as the term begins."""
        self._services.timers.after(_FIRST_LOOK_MS, self._look)

    def end(self) -> None:
        """Stop the schedule, as the term is over."""
        self._is_over = True

    def decided(self) -> None:
        """Schedule the next step while leaderships wait to return to preferred replicas."""
        self._report_held_back()
        if self._balance and not self._is_due:
            self._is_due = True
            self._services.timers.after(_STEP_MS, self._step)

    def _look(self) -> None:
        if self._is_over:
            return
        config = self._services.config
        percentage = _EVERYTHING
        if config.auto_leader_rebalance_enable:
            percentage = config.leader_imbalance_per_broker_percentage
        if config.auto_leader_rebalance_enable or self._balance or self._balance.counts_looks:
            self._offer(RebalanceDue(percentage))
        interval_ms = config.leader_imbalance_check_interval_seconds * 1000
        self._services.timers.after(interval_ms, self._look)

    def _step(self) -> None:
        self._is_due = False
        if not self._is_over:
            self._offer(RebalanceStepDue())

    def _report_held_back(self) -> None:
        held_back = self._balance.held_back()
        if held_back == self._held_back:
            return
        before, self._held_back = self._held_back, held_back
        tracer = self._services.tracer
        for broker_id in held_back:
            if broker_id not in before:
                tracer.mark("leaderships_wait_for_catch_up")
                tracer.log(
                    "controller",
                    logging.INFO,
                    f"broker {broker_id} gets its preferred leaderships back when it has caught up",
                )
