"""Profiles of brokers' processes.

Brokers shut down in a controlled way, alone or together; processes pause beyond their sessions.
Clients look for the next leaders.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.profiles.profile import Pace, Profile, weights

PROCESSES: Final = (
    # Brokers shut down in a controlled way, alone or together, while other brokers and the
    # controller crash (V43).
    Profile(
        "shutdowns",
        weights=weights(
            "slow_link 3, cut_two_ways 1.5, crash_controller 1.5, crash_any 1, expire_session 1,"
            " lose_answer 1, slow_disk 1"
        ),
        pace=Pace(left_out=0.25, interval_ms=(300, 1_200), down_ms=((20, 400), (200, 2_500))),
        properties={
            "controlled.shutdown.enable": "true",
            "controlled.shutdown.retry.backoff.ms": "300",
        },
        scenario="stop_together",
    ),
    # Processes pause beyond their session timeouts; clients follow lists of brokers (V47, V82).
    Profile(
        "pauses",
        weights=weights("pause 6, expire_session 4, crash_any 2, slow_link 2, cut_store 0.5"),
        pace=Pace(left_out=0.1, interval_ms=(300, 1_200), down_ms=((20, 400), (200, 2_500))),
        recreates=0.3,
        churn=("brokers_followed",),
    ),
    # Leaders end, and clients ask for the next ones at once (V83). Nothing else cuts a connection,
    # so that no response may wait for another reason.
    Profile(
        "leaders_end",
        weights=weights("crash_leader 5, crash_controller 2, crash_any 1, stop 3"),
        pace=Pace(left_out=0.2, interval_ms=(400, 1_200), down_ms=((20, 400), (200, 2_500))),
        recreates=0.0,
        churn=("leaders_followed",),
        watches_leader_waits=True,
    ),
)
