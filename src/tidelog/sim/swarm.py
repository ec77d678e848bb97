"""The swarm: a profile from which each seed draws another profile, its world (swarm testing).

A seed draws which kinds of faults happen, on average half of all kinds, and how often each happens.
It also draws the number of brokers and log directories, protocol levels, segment size, flushes,
timeouts, the scenario, the phase, and the kinds of clients. About every third seed chooses a base
from `BASES`, the other profiles and the starting points, and changes it: fewer kinds of faults,
other rates, other settings.

`SCENARIO_NEEDS` and `CHURN_NEEDS` have the settings that a scenario or a kind of churn needs.
Without these settings, the scenario or kind of churn would have no effect, or would cause losses
that no broker can prevent.

The seed alone determines every draw, and each draw has its own random stream. Therefore a new kind
of fault changes no other draw, and a new base changes only the worlds of the seeds that choose
it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.sim.faults.kinds import KINDS, LOG_DIRS
from tidelog.sim.profiles import SWARM, Pace, Profile, all_named, named
from tidelog.sim.profiles.profile import properties_of
from tidelog.sim.seeds import stream

#: The profiles and starting points from which a seed may choose the base of its world.
BASES: Final[Mapping[str, Profile]] = {name: named(name) for name in all_named() if name != SWARM}
_SHARE_OF_BASES: Final = 0.35
#: Kinds of faults that lose no data of a broker, and end no process.
_GENTLE: Final = (
    "cut_two_ways", "cut_one_way", "isolate", "pause", "expire_session", "lose_answer",
    "lose_request", "slow_link", "slow_disk", "reset_connections", "late_watches", "jitter",
    "clog", "split_reads",
)  # fmt: skip
#: Pace of the faults in a world with a scenario whose steps need a healthy cluster.
_CALM: Final = Pace(left_out=0.0, interval_ms=(2_000, 5_000))


@dataclass(frozen=True, slots=True)
class Needs:
    """Settings that a scenario or a kind of churn needs."""

    #: Values of fields of the profile, by the name of the field.
    changes: Mapping[str, Any] = field(default_factory=dict)
    #: Further configuration of the brokers, as in the argument `config` of a Profile.
    config: str = ""
    #: Kinds of faults that may happen; empty for all kinds.
    only: tuple[str, ...] = ()
    down_ms: tuple[tuple[int, int], ...] = ()


_DIRECT: Final = ("2.6",)
_SHUTDOWNS: Final = "controlled.shutdown.enable=true, controlled.shutdown.retry.backoff.ms=300"

#: Settings that each scenario needs.
SCENARIO_NEEDS: Final[Mapping[str, Needs]] = {
    "brokers_catch_up": Needs(
        config="leader.imbalance.check.interval.seconds=1,"
        " leader.imbalance.per.broker.percentage=0, replica.fetch.max.bytes=300"
    ),
    "controller_lost_at_each_write": Needs(),
    "damaged_member": Needs(config="log.flush.interval.messages=20, log.segment.bytes=6000"),
    "early_follower": Needs(),
    "every_member_ends": Needs(),
    "last_replica_standing": Needs(),
    "leader_returns": Needs(),
    "left_behind": Needs(config="replica.lag.time.max.ms=700"),
    "missing_directory": Needs({"recreates": 0.0}, down_ms=((3_000, 5_000),)),
    "older_disk_returns": Needs(),
    "power_fails_everywhere": Needs(config="flush.before.ack=true, log.segment.bytes=6000"),
    "rolling_bumps": Needs({"protocol_levels": ("2.6", "3.9")}, "replica.fetch.max.bytes=300"),
    "sessions_end_early": Needs({"log_dirs": (2, 3)}),
    "stop_together": Needs(config=_SHUTDOWNS),
    "two_terms_lost": Needs(
        {"has_groups": False},
        "log.flush.interval.ms=300, replica.high.watermark.checkpoint.interval.ms=40",
    ),
    "unanswered_controllers": Needs(config="controller.activity.timeout.ms=400"),
    "unheard_of_return": Needs({"has_groups": False}),
    "unheard_restarts": Needs(
        {"protocol_levels": _DIRECT}, "replica.lag.time.max.ms=400", down_ms=((20, 60),)
    ),
    "unlucky_elections": Needs({"store_latency_ms": (2.0, 40.0)}),
    "unreadable_partition": Needs(),
    "unreadable_topic": Needs(),
    "unregistered_fetches": Needs(
        {"has_groups": False, "protocol_levels": _DIRECT}, down_ms=((20, 400),)
    ),
}
#: Settings that a kind of churn needs, for the kinds that happen only if a profile names them.
CHURN_NEEDS: Final[Mapping[str, Needs]] = {
    "brokers_followed": Needs(),
    "directories_changed": Needs({"log_dirs": (2, 3), "brokers": 4}),
    "flush_policy_changed": Needs(config="log.segment.bytes=6000"),
    "instances_doubled": Needs(),
    "moves_redirected": Needs({"brokers": 5}),
    "nodes_edited": Needs(),
    "offsets_looked_up": Needs(),
    "offsets_of_recreated_topics": Needs(),
    "partitions_moved": Needs({"brokers": 5}),
    "partitions_removed": Needs({"recreates": 0.0}),
    "records_expire": Needs(config="log.retention.check.interval.ms=60"),
    "records_reread": Needs(),
    "replicas_described": Needs(),
    "topics_mislaid": Needs({"recreates": 0.0}, only=_GENTLE),
    "untimed_records": Needs(config="log.retention.check.interval.ms=200"),
}

#: For each part of the brokers' configuration, the alternatives of which a seed draws one. The
#: empty text keeps the defaults.
_CONFIGS: Final[Mapping[str, tuple[str, ...]]] = {
    "segments": ("", "", "log.segment.bytes=1500", "log.segment.bytes=6000"),
    "flushes": (
        "", "", "log.flush.interval.messages=20", "log.flush.interval.messages=1",
        "log.flush.interval.ms=300", "flush.before.ack=true",
    ),
    "lag": (
        "", "", "replica.lag.time.max.ms=400", "replica.lag.time.max.ms=700",
        "replica.lag.time.max.ms=800, isr.expand.linger.ms=250",
    ),
    "fetches": ("", "", "replica.fetch.max.bytes=300", "replica.fetch.max.bytes=1200"),
    "requests": ("", "", "", "request.timeout.ms=150"),
    "compression": ("", "", "", "compression.type=gzip"),
    "events": ("", "", "cluster.events.enable=true"),
    "shutdowns": ("", "", _SHUTDOWNS),
    "balance": (
        "", "", "", "leader.imbalance.check.interval.seconds=1,"
        " leader.imbalance.per.broker.percentage=0",
    ),
    "pending reads": ("", "", "follower.fetch.pending.reads.insync.enable=true"),
}  # fmt: skip
_EVENTS: Final = "cluster.events.enable"
_STORE_LATENCY_MS: Final = ((0.1, 1.5), (0.1, 1.5), (2.0, 80.0), (5.0, 150.0), (20.0, 250.0))
_LEVELS: Final = ((), (), (), _DIRECT, ("2.6", "2.6", "3.9"), ("2.6", "3.9"))
_DOWN_MS: Final = ((20, 60), (20, 200), (20, 400), (20, 600), (200, 1_500), (20, 6_000))
_LIVES_MS: Final = ((300, 1_200), (500, 2_000), (2_000, 9_000))


def world_of(seed: int) -> Profile:
    """Return the profile that a seed of the profile `swarm` draws, called the seed's world."""
    if _draw(seed, "origin").random() < _SHARE_OF_BASES:
        # Choose the base with the highest draw: if a base is added, a seed keeps its base or gets
        # the new one.
        return _bent(seed, max(BASES, key=lambda name: _draw(seed, f"base {name}").random()))
    return _drawn(seed)


def has_drawn(world: Profile, words: str) -> bool:
    """Return whether a world has every base, scenario, phase, churn and fault named in `words`."""
    drawn = {world.base, world.scenario, world.phase, *world.churn, *world.weights}
    return drawn.issuperset(words.split())


def described(profile: Profile) -> str:
    """Return in one line what distinguishes a profile from the default profile."""
    plain, parts = Profile(profile.name), []
    for each in fields(Profile):
        value = getattr(profile, each.name)
        if each.name == "name" or value == getattr(plain, each.name):
            continue
        parts.append(f"{each.name.replace('_', ' ')} {_text(value)}")
    return "; ".join(parts)


def _text(value: object) -> str:
    if isinstance(value, Pace):
        downs = ", ".join(f"{least}-{most}" for least, most in value.down_ms)
        return f"a fault every {value.interval_ms[0]}-{value.interval_ms[1]} ms, down {downs} ms"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items()) or "none"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return f"{value:.2g}" if isinstance(value, float) else str(value)


def _draw(seed: int, part: str) -> random.Random:
    return stream(seed, SWARM, part)


# Worlds with a base


def _bent(seed: int, base: str) -> Profile:
    """Return the profile `base` with fewer kinds of faults, other rates, and some other settings.

    If a checker of the base assumes that some faults never happen, only the faults change.
    """
    profile = BASES[base]
    weights = _some(seed, profile.weights, 0.7)
    pace, factor = profile.pace, 2.0 ** _draw(seed, "pace").uniform(-1.0, 1.0)
    least, most = (max(2, int(each * factor)) for each in pace.interval_ms)
    changes: dict[str, Any] = {"interval_ms": (least, max(most, least + 1))}
    if not profile.has_all_kinds:
        changes["left_out"] = 0.0
    bent = replace(profile, name=SWARM, base=base, weights=weights, pace=replace(pace, **changes))
    if is_strict(profile):
        return bent
    drawn = {
        key: value
        for part in ("segments", "flushes", "fetches", "compression", "events")
        for key, value in _config(seed, part).items()
    }
    if profile.protocol_levels:
        drawn.pop(_EVENTS, None)
    return replace(bent, properties={**drawn, **profile.properties})


def is_strict(profile: Profile) -> bool:
    """Return whether a checker of the profile assumes that some faults never happen."""
    return (
        profile.isr_stands
        or profile.healthy_stay
        or profile.leaders_hear
        or profile.watches_leader_waits
        or profile.throttles
        or profile.patient_fetches
        or not profile.has_groups
    )


def _some(seed: int, weights: Mapping[str, float], share: float) -> dict[str, float]:
    """Return a random part of the kinds of faults, each up to eight times more or less frequent.
    `share` is the average size of the part.
    """
    found = {}
    for name, weight in weights.items():
        draw = _draw(seed, f"kind {name}")
        if draw.random() < share:
            found[name] = round(weight * 2.0 ** draw.uniform(-3.0, 3.0), 2)
    return found or dict(weights)


# Worlds without a base


def _drawn(seed: int) -> Profile:
    """Return a profile of which all settings are drawn, without a base."""
    brokers = _draw(seed, "brokers").choice((3, 3, 3, 4, 5))
    log_dirs = _draw(seed, "log dirs").choice((1, 1, 1, 2, 3))
    config = {key: value for part in _CONFIGS for key, value in _config(seed, part).items()}
    draw = _draw(seed, "workload")
    profile = Profile(
        SWARM,
        topic_life_ms=draw.choice(_LIVES_MS),
        recreates=draw.choice((0.0, 0.7, 1.0)),
        chosen_replicas=draw.choice((0.0, 0.5, 1.0)),
        keeps_budget=True,
        churns=draw.random() < 0.15,
        churn_share=draw.choice((0.0, 0.2, 0.5)),
        compacted=(is_compacted := draw.random() < 0.1),
        # The shared producer writes records without keys, which compacted topics reject.
        shared_producer=draw.random() < 0.2 and not is_compacted,
        overtaking_share=draw.choice((0.0, 0.0, 0.7)),
        has_groups=draw.random() < 0.85,
        brokers=brokers,
        log_dirs=(log_dirs,),
        protocol_levels=_draw(seed, "levels").choice(_LEVELS),
        store_latency_ms=_draw(seed, "store").choice(_STORE_LATENCY_MS),
        shares_stream=False,
    )
    if _draw(seed, "losses").random() < 0.08:
        profile = replace(profile, keeps_budget=False, keeps_promises=False)
    scenario = _one_of(seed, "scenario", SCENARIO_NEEDS, 0.5)
    churn = _one_of(seed, "churn", CHURN_NEEDS, 0.5)
    needs = [CHURN_NEEDS[churn]] if churn else []
    needs += [SCENARIO_NEEDS[scenario]] if scenario else []
    profile = replace(profile, scenario=scenario, churn=(churn,) if churn else ())
    for each in needs:
        profile = replace(profile, **each.changes)
        config |= properties_of(each.config) if each.config else {}
    if scenario:
        # Most scenarios wait for a partition with a replica on every broker.
        profile = replace(profile, brokers=profile.brokers if profile.brokers == 5 else 3)
    if profile.protocol_levels:
        # A controller may miss a state that a leader wrote (A12). The next event then has an older
        # ISR as its former ISR, which the checker of events would report as a violation.
        config.pop(_EVENTS, None)
    return _faulty(seed, replace(profile, properties=config), needs)


def _faulty(seed: int, profile: Profile, needs: Sequence[Needs]) -> Profile:
    """Return the world `profile` with its kinds of faults, their pace and the phase after the
    faults.
    """
    allowed = [
        name
        for name, kind in KINDS.items()
        if (kind.family != LOG_DIRS or profile.log_dirs != (1,))
        and all(not each.only or name in each.only for each in needs)
    ]
    draw = _draw(seed, "pace")
    # With many faults a scenario seldom finds the conditions for its steps, so most worlds with a
    # scenario have few faults.
    is_calm = bool(profile.scenario) and draw.random() < 0.7
    down_ms = next((each.down_ms for each in needs if each.down_ms), (draw.choice(_DOWN_MS),))
    least = int(60 * 2.0 ** draw.uniform(0.0, 4.5))
    pace = _CALM if is_calm else Pace(0.0, (least, 3 * least))
    weights = _some(seed, dict.fromkeys(allowed, 1.0), 0.15 if is_calm else 0.5)
    phase = _phase(seed, profile)
    return replace(
        profile, weights=weights, pace=replace(pace, left_out=0.0, down_ms=down_ms), phase=phase
    )


def _phase(seed: int, profile: Profile) -> str:
    """Return the name of the phase after the faults; empty for most worlds."""
    if not profile.keeps_budget:
        return ""
    if profile.log_dirs != (1,) and profile.brokers > 3:
        return _one_of(seed, "phase", ("offline directory",), 0.5)
    return _one_of(seed, "phase", ("absence",), 0.2)


def _one_of(seed: int, part: str, names: Iterable[str], share: float) -> str:
    """For the given share of the seeds, return one of the names; for other seeds the empty text."""
    draw = _draw(seed, part)
    return draw.choice(list(names)) if draw.random() < share else ""


def _config(seed: int, part: str) -> dict[str, str]:
    text = _draw(seed, part).choice(_CONFIGS[part])
    return properties_of(text) if text else {}
