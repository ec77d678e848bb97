"""Which fault strikes when: drawn from a seed, before anything runs.

A fault has a begin, an end and a target: a broker by role (the controller, the leader of a
partition) or by number. The schedule alone keeps the budget: at most one broker is killed, paused
or expired at a time, and at most one other has a full disk meanwhile. Neither takes what a log
holds, so records that two of three replicas acknowledged stay.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

KILL = "kill"
EXPIRE = "session expiry by a pause"
CLOSE = "session closed in the store"
PAUSE = "pause below the session timeout"
FULL = "full disk"
#: Faults that take a broker away; a full disk may coincide with one of them.
AWAY = (KILL, EXPIRE, CLOSE, PAUSE)

#: Between the end of a fault and the next one.
REST_S = (0.3, 2.5)
#: A full disk begins so long before the fault that it may coincide with.
HEAD_START_S = (0.2, 1.5)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `target` names its broker: `controller`, `leader N`, `broker N`, or
    `another leader`, of a broker other than the one that the fault before struck."""

    kind: str
    begin_s: float
    end_s: float
    target: str

    def __str__(self) -> str:
        return f"{self.begin_s:7.2f}-{self.end_s:.2f} s  {self.kind} ({self.target})"


def draw(
    seed: int, seconds: float, session_s: float, kinds: Sequence[str], partitions: int
) -> list[Fault]:
    """Return the faults of a run; all kinds once before any comes a second time."""
    chance = random.Random(f"chaos {seed}")
    faults: list[Fault] = []
    now_s = chance.uniform(*REST_S)
    round_of_kinds: list[str] = []
    while now_s < seconds:
        if not round_of_kinds:
            round_of_kinds = chance.sample(list(kinds), len(kinds))
        kind = round_of_kinds.pop()
        end_s = now_s + _length_s(kind, chance, session_s)
        faults.append(Fault(kind, now_s, end_s, _target(chance, partitions)))
        if kind == FULL and chance.random() < 0.7:
            other = chance.choice([each for each in AWAY if each in kinds])
            begin_s = now_s + chance.uniform(*HEAD_START_S)
            length_s = _length_s(other, chance, session_s)
            faults.append(Fault(other, begin_s, begin_s + length_s, "another leader"))
            end_s = max(end_s, begin_s + length_s)
        now_s = end_s + chance.uniform(*REST_S)
    return faults


def _target(chance: random.Random, partitions: int) -> str:
    kind = chance.choice(("controller", "leader", "leader", "broker"))
    if kind == "controller":
        return kind
    return f"{kind} {chance.randrange(partitions) if kind == 'leader' else chance.randint(1, 3)}"


def _length_s(kind: str, chance: random.Random, session_s: float) -> float:
    if kind == CLOSE:
        return 0.0
    if kind == EXPIRE:
        return session_s * chance.uniform(1.2, 2.5)
    if kind == PAUSE:
        return session_s * chance.uniform(0.05, 0.7)
    if kind == KILL:
        return session_s * chance.choice((0.0, chance.uniform(0.0, 2.0)))
    return chance.uniform(0.5, 5.0)
