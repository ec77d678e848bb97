"""Replication with a rule broken, as designs before had it or as a slip would: models must object.

Each is a set of replacements of attributes of production modules, by the mechanism of the
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
from tests.support.mutants import MUTANTS, LineMutant, Mutant

from tidelog.controller.partitions.isr import ProposalVerdict
from tidelog.controller.writes import Written
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import NO_EPOCH
from tidelog.metadata.store import ANY_VERSION
from tidelog.replication.isr import not_made

#: A target, "module:attribute", and what makes its replacement of the original.
Replacement = tuple[str, Callable[[Any], Any]]


@dataclass(frozen=True, slots=True)
class Variant:
    """Mutants that are in force together, and the invariants that the model must find broken; none
    for a variant that is sound."""

    name: str
    mutants: tuple[Mutant | LineMutant, ...]
    breaks: tuple[str, ...]
    #: The smallest bounds of the model at which the defect shows; None: the test knows them.
    bounds: Any = None
    #: The highest partition epoch that it takes (`FailoverModel`, superseded changes).
    max_version: int = 1
    #: min.insync.replicas (superseded changes).
    minimum: int = 1

    @property
    def names(self) -> list[str]:
        """The names of the mutants that it is made of."""
        return [mutant.name for mutant in self.mutants]


def variant(name: str, breaks: tuple[str, ...], *parts: str | Replacement, **more: Any) -> Variant:
    """Return a variant of the simulator's mutants, by name, and of other replacements."""
    mutants = (
        MUTANTS[part] if isinstance(part, str) else Mutant(part[0], "", "", (part[0],), part[1])
        for part in parts
    )
    return Variant(name, tuple(mutants), breaks, **more)


def by_name(*variants: Variant) -> Mapping[str, Variant]:
    """Return variants by name."""
    return {each.name: each for each in variants}


@contextmanager
def in_force(variant: Variant) -> Iterator[None]:
    """The variant is what runs within; raises MutantGoneError."""
    with ExitStack() as stack:
        for mutant in variant.mutants:
            stack.enter_context(mutant.in_force())
        yield


_FOLLOWER: Final = "tidelog.replication.follower:FollowerReplica"
_STORE_WRITER: Final = "tidelog.broker.controller.store_writer:StoreWriter"
_ISR_DECISIONS: Final = "tidelog.controller.partitions.isr"
_DIRECT_MODEL: Final = "tests.support.models.direct_model"

#: A leader answers whoever asks, whatever epoch the asker believes in.
_UNFENCED: Final[Replacement] = (
    "tidelog.replication.leader:epoch_error",
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


def _apart(fenced: bool) -> tuple[Replacement, ...]:
    return (
        (f"{_FOLLOWER}.answered", _answered),
        (f"{_FOLLOWER}.appended", _appended),
        ("tests.support.models.replicas:Replica.serve", _serve(fenced)),
    )


def _asked_offset_only(_: Any) -> Any:
    """The follower truncates to the offset in the response, whatever epoch ends there."""
    return lambda diverging, epochs, log_end_offset: min(diverging.end_offset, log_end_offset)


BOTH = ("WeakIsr", "StrongIsr")
_STRONG = ("StrongIsr",)
_WATERMARK = ("ValidHighWatermark",)
_TWO = (*_STRONG, *_WATERMARK)

#: Variants of `LogModel`: the published history of the protocol.
LOG_VARIANTS: Final = by_name(
    variant("truncate_to_high_watermark", BOTH, "truncate_to_high_watermark"),
    variant(
        "kip_101_only",
        BOTH,
        _UNFENCED,
        *_apart(fenced=False),
        (f"{_FOLLOWER}.truncated", _truncated),
        ("tidelog.replication.truncation:truncation_offset", _asked_offset_only),
    ),
    variant("kip_279_only", BOTH, _UNFENCED, *_apart(fenced=False)),
    variant("kip_320_first_try", BOTH, _UNFENCED),
    variant("unfenced_truncation", BOTH, *_apart(fenced=False)),
    variant("kip_320", (), *_apart(fenced=True)),
    variant("expand_without_epoch_rule", _STRONG, "expand_without_epoch_rule"),
    variant("stale_fetch_answers", BOTH, "stale_fetch_answer_applied"),
)


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
ISR_VARIANTS: Final = by_name(
    variant("optimistic_shrink", _WATERMARK, "optimistic_shrink"),
    variant("ignore_pending_expand", _WATERMARK, "pending_expand_ignored"),
    variant("no_version_check", _WATERMARK, "partition_epoch_unchecked"),
    variant(
        "accept_stale_update",
        _WATERMARK,
        ("tidelog.replication.leader:LeaderReplica.change_accepted", _whatever_comes),
    ),
    variant("older_commands_obeyed", _TWO, "older_command_of_epoch_obeyed"),
    variant("deposed_leader_alters_isr", _TWO, "deposed_leader_alters_isr"),
)


#: Variants of `IsrModel` with changes that newer ones supersede.
SUPERSEDED_VARIANTS: Final = by_name(
    variant("union_is_last_change", _TWO, "union_is_last_change"),
    variant("withdrawal_drops_sent_change", _TWO, "withdrawal_drops_sent_change"),
    variant("minimum_of_maximal_isr", ("MinimumConfirmed",), "minimum_of_maximal_isr", minimum=2),
    # An open outcome counts as a refusal.
    variant(
        "unanswered_is_refused",
        _TWO,
        (
            "tidelog.replication.isr:unanswered",
            lambda _: lambda state: not_made(state, state.in_flight[-1]),
        ),
    ),
)


#: Variants of `PendingModel`.
PENDING_VARIANTS: Final = by_name(
    variant("pending_moves_watermark", _WATERMARK, "pending_moves_watermark"),
    variant("pending_kept", ("HeardDeathCounts",), "pending_kept_after_disconnect"),
    variant("pending_forgotten", ("HealthyFollowerStays",), "pending_forgotten_by_leader"),
)


# The leader writes the state node itself.


def _refused_once_lost(_: Any) -> Any:
    """A lost answer counts as a refusal (breaks A8)."""

    def answer_lost(leader: Any, change: Any) -> None:
        leader.leading.change_refused(change, ErrorCode.OPERATION_NOT_ATTEMPTED, 0)

    return answer_lost


#: Variants of `DirectIsrModel`.
DIRECT_VARIANTS: Final = by_name(
    variant(
        "direct_unconditional",
        _TWO,
        (f"{_DIRECT_MODEL}:is_applied", lambda _: lambda read, now: True),
    ),
    variant(
        "direct_lost_answer_refuses", _TWO, (f"{_DIRECT_MODEL}:answer_lost", _refused_once_lost)
    ),
    variant("direct_deposed_leader", _TWO, "deposed_leader_writes"),
    variant("direct_optimistic_shrink", _WATERMARK, "optimistic_shrink"),
)


# Lives of brokers.


def _whoever_is_there(_: Any) -> Any:
    """Members join by a proposal without broker epochs, whenever they came (breaks V63)."""

    def eligible(member: int, epoch: int, state: Any, brokers: Any) -> bool:
        return member in brokers

    return eligible


#: The one variant of `BounceModel` whose leaders send no broker epochs.
UNTOLD: Final = "untold_lives_pass"
#: Variants of `BounceModel`.
BOUNCE_VARIANTS: Final = by_name(
    variant("bounce_unnoticed", _STRONG, "bounce_unnoticed"),
    variant("every_end_is_clean", _STRONG, "every_restart_is_clean"),
    variant("members_of_any_life", _STRONG, "stale_member_joins"),
    variant(UNTOLD, BOTH, (f"{_ISR_DECISIONS}:_is_eligible", _whoever_is_there)),
    variant("commands_of_any_life", BOTH, "stale_broker_epoch_obeyed"),
)


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
FAILOVER_VARIANTS: Final = by_name(
    variant(
        "deposed_controller_writes",
        ("DeposedWritesNothing",),
        (f"{_STORE_WRITER}.__init__", _no_fence),
    ),
    variant(
        "told_before_written", ("OnlyPublishedIsTold",), (f"{_STORE_WRITER}.write", _told_at_once)
    ),
    variant(
        "refusals_are_not_final",
        _STRONG,
        (
            f"{_ISR_DECISIONS}:_refused_for_good",
            lambda _: lambda error, wanted, state, controller_epoch: ProposalVerdict(error),
        ),
        max_version=2,
    ),
)

#: Those of models of failovers and of the ISR, by name.
VARIANTS: Final[Mapping[str, Variant]] = {
    **LOG_VARIANTS, **ISR_VARIANTS, **SUPERSEDED_VARIANTS, **DIRECT_VARIANTS, **FAILOVER_VARIANTS,
    **BOUNCE_VARIANTS,
}  # fmt: skip
