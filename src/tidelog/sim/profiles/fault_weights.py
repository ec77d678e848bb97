"""Weights of the kinds of faults where a profile names none.

A seed multiplies each by a factor that it draws, and leaves some kinds out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Weight of each kind before a seed draws its own.
DEFAULT_WEIGHTS: Final[Mapping[str, float]] = {
    "strike": 5.0,
    "crash_leader": 3.0,
    "crash_any": 2.0,
    "crash_controller": 1.5,
    "stop": 1.5,
    "cut_one_way": 2.0,
    "cut_two_ways": 2.0,
    "isolate": 1.5,
    "cut_store": 1.5,
    "slow_link": 2.0,
    "pause": 2.5,
    "expire_session": 3.0,
    "lose_answer": 2.0,
    "lose_request": 1.0,
    "slow_disk": 1.5,
    "reset_connections": 1.5,
}
