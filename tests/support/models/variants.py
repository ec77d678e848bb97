"""Replication with a rule broken, as designs before had it or as a slip would: models must object.

Each is a set of named replacements of attributes of production modules, by the mechanism of the
simulator's mutants: where a target is gone, applying it fails. What older protocols did in messages
that brokers do not exchange any more (a reconciliation apart from the fetch) replaces the model's
own part that carries them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.support.models.replicas import Answer, Fetch, Replica
from tests.support.mutants import MUTANTS, Mutant

from tidelog.controller.partitions.isr import ProposalVerdict
from tidelog.controller.writes import Written
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import NO_EPOCH
from tidelog.metadata.store import ANY_VERSION
from tidelog.replication.isr import not_made


@dataclass(frozen=True, slots=True)
class Variant:
    """Replacements that are in force together, and the invariants that the model must find broken;
    none for a variant that is sound."""

    name: str
    replacements: tuple[Mutant, ...]
    breaks: tuple[str, ...]
    #: The highest partition epoch that it takes (`FailoverModel`, superseded changes).
    max_version: int = 1
    #: min.insync.replicas (superseded changes).
    minimum: int = 1

    @property
    def mutants(self) -> tuple[str, ...]:
        """Those of the simulator's mutants that it is made of."""
        return tuple(one.name for one in self.replacements if one.name in MUTANTS)


@contextmanager
def in_force(variant: Variant) -> Iterator[None]:
    """The variant is what runs within; raises MutantGoneError."""
    with ExitStack() as stack:
        for mutant in variant.replacements:
            stack.enter_context(mutant.in_force())
        yield


def _put(name: str, module: str, attribute: str, make: Callable[[Any], Any]) -> Mutant:
    return Mutant(name, "", "", (f"{module}:{attribute}",), make)


REPLICAS_MODULE = "tests.support.models.replicas"
FOLLOWER = "tidelog.replication.follower"
TRUNCATION = "tidelog.replication.truncation"
ISR = "tidelog.replication.isr"

#: A leader answers whoever asks, whatever epoch the asker believes in.
_UNFENCED = _put(
    "unfenced",
    "tidelog.replication.leader",
    "epoch_error",
    lambda _: lambda own, asked: ErrorCode.NONE,
)


# Reconciliation apart from the fetch, as before KIP-595: a follower asks where its last epoch ends
# when a term begins, and from then on its fetches say nothing of its history.


def _answered(original: Any) -> Any:
    def answered(role: Any, position: Any, error: int, diverging: Any, *rest: Any) -> Any:
        is_current = position == role.position and not role.is_busy
        effects = original(role, position, error, diverging, *rest)
        if is_current and not error and diverging is None:
            role.position = role.position._replace(last_fetched_epoch=NO_EPOCH)
        return effects

    return answered


def _appended(original: Any) -> Any:
    def appended(role: Any, log_end_offset: int, latest_epoch: int) -> Any:
        return original(role, log_end_offset, NO_EPOCH)

    return appended


def _truncated(original: Any) -> Any:
    """One question a term, as KIP-101 has it."""

    def truncated(role: Any, log_start: int, log_end: int, latest_epoch: int) -> None:
        original(role, log_start, log_end, NO_EPOCH)

    return truncated


def _serve(fenced: bool) -> Callable[[Any], Any]:
    """The reconciliation is neither an acknowledgement nor brings it records."""

    def make(original: Any) -> Any:
        def serve(leader: Replica, fetch: Fetch) -> Answer | None:
            position = fetch.position
            if position.last_fetched_epoch < 0 or leader.leading is None:
                answer: Answer | None = original(leader, fetch)
                return answer
            if fenced and leader.leading.leader_epoch != position.leader_epoch:
                return Answer(fetch.replica, position, ErrorCode.FENCED_LEADER_EPOCH)
            try:
                diverging = leader.diverging(position)
            except KafkaError as refusal:
                return Answer(fetch.replica, position, refusal.code)
            return Answer(fetch.replica, position, 0, diverging)

        return serve

    return make


def _apart(fenced: bool) -> tuple[Mutant, ...]:
    return (
        _put("reconciled once", FOLLOWER, "FollowerReplica.answered", _answered),
        _put("histories not told", FOLLOWER, "FollowerReplica.appended", _appended),
        _put("reconciled apart", REPLICAS_MODULE, "Replica.serve", _serve(fenced)),
    )


def _asked_offset_only(_: Any) -> Any:
    """The follower truncates to the offset in the response, whatever epoch ends there."""
    return lambda diverging, epochs, log_end_offset: min(diverging.end_offset, log_end_offset)


BOTH = ("WeakIsr", "StrongIsr")
#: Variants of `LogModel`: the published history of the protocol.
LOG_VARIANTS: Final[Mapping[str, Variant]] = {
    one.name: one
    for one in (
        Variant("truncate_to_high_watermark", (MUTANTS["truncate_to_high_watermark"],), BOTH),
        Variant(
            "kip_101_only",
            (
                _UNFENCED,
                *_apart(fenced=False),
                _put("asked once", FOLLOWER, "FollowerReplica.truncated", _truncated),
                _put("offset only", TRUNCATION, "truncation_offset", _asked_offset_only),
            ),
            BOTH,
        ),
        Variant("kip_279_only", (_UNFENCED, *_apart(fenced=False)), BOTH),
        Variant("kip_320_first_try", (_UNFENCED,), BOTH),
        Variant("unfenced_truncation", _apart(fenced=False), BOTH),
        Variant("kip_320", _apart(fenced=True), ()),
        Variant(
            "expand_without_epoch_rule", (MUTANTS["expand_without_epoch_rule"],), ("StrongIsr",)
        ),
        Variant("stale_fetch_answers", (MUTANTS["stale_fetch_answer_applied"],), BOTH),
    )
}


# The ISR while a change of it is under way.


def _whatever_comes(original: Any) -> Any:
    """A leader takes the controller's word however old."""

    def change_accepted(
        role: Any, change: Any, isr: Any, leader_epoch: int, epoch: int, now_ms: int
    ) -> Any:
        if leader_epoch == role.leader_epoch:
            role.isr = replace(role.isr, partition_epoch=-1)
        return original(role, change, isr, leader_epoch, epoch, now_ms)

    return change_accepted


#: Variants of `IsrModel`: what the published model of KIP-497 is broken with.
ISR_VARIANTS: Final[Mapping[str, Variant]] = {
    one.name: one
    for one in (
        Variant(
            "optimistic_shrink",
            (MUTANTS["optimistic_shrink"],),
            ("ValidHighWatermark",),
        ),
        Variant(
            "ignore_pending_expand",
            (MUTANTS["pending_expand_ignored"],),
            ("ValidHighWatermark",),
        ),
        Variant(
            "no_version_check",
            (MUTANTS["partition_epoch_unchecked"],),
            ("ValidHighWatermark",),
        ),
        Variant(
            "accept_stale_update",
            (
                _put(
                    "stale answers taken",
                    "tidelog.replication.leader",
                    "LeaderReplica.change_accepted",
                    _whatever_comes,
                ),
            ),
            ("ValidHighWatermark",),
        ),
        Variant(
            "older_commands_obeyed",
            (MUTANTS["older_command_of_epoch_obeyed"],),
            ("StrongIsr", "ValidHighWatermark"),
        ),
        Variant(
            "deposed_leader_alters_isr",
            (MUTANTS["deposed_leader_alters_isr"],),
            ("StrongIsr", "ValidHighWatermark"),
        ),
    )
}


#: Variants of `IsrModel` with changes that newer ones supersede.
SUPERSEDED_VARIANTS: Final[Mapping[str, Variant]] = {
    one.name: one
    for one in (
        Variant(
            "union_is_last_change",
            (MUTANTS["union_is_last_change"],),
            ("StrongIsr", "ValidHighWatermark"),
        ),
        Variant(
            "withdrawal_drops_sent_change",
            (MUTANTS["withdrawal_drops_sent_change"],),
            ("StrongIsr", "ValidHighWatermark"),
        ),
        Variant(
            "minimum_of_maximal_isr",
            (MUTANTS["minimum_of_maximal_isr"],),
            ("MinimumConfirmed",),
            minimum=2,
        ),
        Variant(
            "unanswered_is_refused",
            (
                _put(
                    "an open outcome counts as a refusal",
                    ISR,
                    "unanswered",
                    lambda _: lambda state: not_made(state, state.in_flight[-1]),
                ),
            ),
            ("StrongIsr", "ValidHighWatermark"),
        ),
    )
}


# The leader writes the state node itself.

DIRECT_MODULE = "tests.support.models.direct_model"
_TWO = ("StrongIsr", "ValidHighWatermark")


def _refused_once_lost(_: Any) -> Any:
    """A lost answer counts as a refusal (breaks A8)."""

    def answer_lost(leader: Any, change: Any) -> None:
        leader.leading.change_refused(change, ErrorCode.OPERATION_NOT_ATTEMPTED, 0)

    return answer_lost


#: Variants of `DirectIsrModel`.
DIRECT_VARIANTS: Final[Mapping[str, Variant]] = {
    one.name: one
    for one in (
        Variant(
            "direct_unconditional",
            (
                _put(
                    "written whatever the version is",
                    DIRECT_MODULE,
                    "is_applied",
                    lambda _: lambda read, now: True,
                ),
            ),
            _TWO,
        ),
        Variant(
            "direct_lost_answer_refuses",
            (_put("lost is refused", DIRECT_MODULE, "answer_lost", _refused_once_lost),),
            _TWO,
        ),
        Variant("direct_deposed_leader", (MUTANTS["deposed_leader_writes"],), _TWO),
        Variant(
            "direct_optimistic_shrink", (MUTANTS["optimistic_shrink"],), ("ValidHighWatermark",)
        ),
    )
}


# Lives of brokers.


def _whoever_is_there(_: Any) -> Any:
    """Members join by a proposal without broker epochs, whenever they came (breaks V63)."""

    def eligible(member: int, epoch: int, state: Any, brokers: Any) -> bool:
        return member in brokers

    return eligible


#: The one variant of `BounceModel` whose leaders send no broker epochs.
UNTOLD: Final = "untold_lives_pass"
#: Variants of `BounceModel`.
BOUNCE_VARIANTS: Final[Mapping[str, Variant]] = {
    one.name: one
    for one in (
        Variant("bounce_unnoticed", (MUTANTS["bounce_unnoticed"],), ("StrongIsr",)),
        Variant(
            "every_end_is_clean",
            (MUTANTS["every_restart_is_clean"],),
            ("StrongIsr",),
        ),
        Variant("members_of_any_life", (MUTANTS["stale_member_joins"],), ("StrongIsr",)),
        Variant(
            UNTOLD,
            (_put(UNTOLD, "tidelog.controller.partitions.isr", "_is_eligible", _whoever_is_there),),
            BOTH,
        ),
        Variant("commands_of_any_life", (MUTANTS["stale_broker_epoch_obeyed"],), BOTH),
    )
}


# Failover of controllers.


def _no_fence(original: Any) -> Any:
    """Writes do not check the controller epoch (breaks V3)."""

    def init(writer: Any, store: Any, tasks: Any, tracer: Any, epoch_version: int) -> None:
        original(writer, store, tasks, tracer, ANY_VERSION)

    return init


def _told_at_once(_: Any) -> Any:
    """Brokers get commands before anything is durable (breaks V2)."""

    async def write(writer: Any, writes: Any) -> list[Written]:
        return [Written() for _ in writes]

    return write


#: Variants of `FailoverModel`.
FAILOVER_VARIANTS: Final[Mapping[str, Variant]] = {
    one.name: one
    for one in (
        Variant(
            "deposed_controller_writes",
            (
                _put(
                    "no fence",
                    "tidelog.broker.controller.store_writer",
                    "StoreWriter.__init__",
                    _no_fence,
                ),
            ),
            ("DeposedWritesNothing",),
        ),
        Variant(
            "told_before_written",
            (
                _put(
                    "told at once",
                    "tidelog.broker.controller.store_writer",
                    "StoreWriter.write",
                    _told_at_once,
                ),
            ),
            ("OnlyPublishedIsTold",),
        ),
        Variant(
            "refusals_are_not_final",
            (
                _put(
                    "nothing written",
                    "tidelog.controller.partitions.isr",
                    "_refused_for_good",
                    lambda _: lambda error, wanted, state, controller_epoch: ProposalVerdict(error),
                ),
            ),
            ("StrongIsr",),
            max_version=2,
        ),
    )
}

#: All of them, by name.
VARIANTS: Final[Mapping[str, Variant]] = {
    **LOG_VARIANTS, **ISR_VARIANTS, **SUPERSEDED_VARIANTS, **DIRECT_VARIANTS, **FAILOVER_VARIANTS,
    **BOUNCE_VARIANTS,
}  # fmt: skip


def finding(mutant: str) -> tuple[str, ...]:
    """The variants in which a mutant of the simulator is found broken all by itself."""
    return tuple(
        variant.name
        for variant in VARIANTS.values()
        if variant.breaks and variant.mutants == (mutant,) and len(variant.replacements) == 1
    )
