"""The models at larger bounds, and with fetches and answers as messages of their own.

`python -m tests.model.soak` explores each in turn; a violation ends it with the story. A model that
is larger than the limit is told as such: nothing was found in it, and nothing is proven.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Final

from tests.support.models import (
    bounce_model,
    direct_model,
    directory_model,
    directory_states,
    failover_model,
    isr_model,
    lake_model,
    log_model,
    reassignment_model,
    reassignment_states,
    upsert_model,
)
from tests.support.models.explorer import Model, TooManyStatesError, explore
from tests.support.models.variants import LOG_VARIANTS, in_force

#: Moves, with a second target, deaths and single fetches together.
REASSIGNMENTS: Final = (
    reassignment_states.Bounds(controller_deaths=2),
    reassignment_states.Bounds(second=(2, 3)),
    reassignment_states.Bounds(second=(1, 3), by_nodes=True),
    reassignment_states.Bounds((1, 2), (2, 3), mortal=1, drops=1),
    reassignment_states.Bounds((1, 2), (2, 3), mortal=3),
    reassignment_states.Bounds((1,), (2, 3), mortal=1, drops=1),
    reassignment_states.Bounds((1, 2), (2, 3), controller_deaths=0, writes=1, splits=True),
    reassignment_states.Bounds((1, 2, 3), (1, 4, 2), minimum=2, mortal=2),
    reassignment_states.Bounds((1, 2, 3), (4, 1, 2), second=(2, 4), minimum=2, drops=1),
)
#: Directories that fail and are replaced, controllers that die, logs that lose their ends.
DIRECTORIES: Final = (
    directory_states.Bounds(),
    directory_states.Bounds(controller_deaths=0, failures=0, replacements=2, restarts=2),
    directory_states.Bounds(controller_deaths=0, lost_answers=1, drops=1),
    directory_states.Bounds(late=(2,), controller_deaths=0, drops=1),
    directory_states.Bounds(late=(2,), failures=0, lost_answers=1),
    directory_states.Bounds(
        minimum=2, controller_deaths=0, replacements=0, failures=1, cuts=1, restarts=2
    ),
    directory_states.Bounds((1, 2, 3), controller_deaths=0, failures=0),
    directory_states.Bounds((1, 2, 3), failures=1, replacements=0, restarts=0),
)
#: Made one after the other: tables of a large model take gigabytes.
MODELS: Final[tuple[Callable[[], Model], ...]] = (
    lambda: log_model.LogModel(log_model.Bounds(1, 1, 1, split=True)),
    lambda: log_model.LogModel(log_model.Bounds(1, 2, 1, split=True)),
    lambda: log_model.LogModel(log_model.Bounds(2, 2, 1, split=True)),
    lambda: log_model.LogModel(log_model.Bounds(2, 2, 2)),
    lambda: log_model.LogModel(log_model.Bounds(3, 3, 2)),
    lambda: isr_model.IsrModel(isr_model.Bounds(2, 2, keeps_void=True)),
    lambda: isr_model.IsrModel(isr_model.Bounds(2, 4)),
    lambda: isr_model.IsrModel(isr_model.Bounds(3, 3)),
    lambda: isr_model.IsrModel(isr_model.superseding(max_version=2)),
    lambda: isr_model.IsrModel(isr_model.superseding(max_version=2, minimum=2)),
    lambda: isr_model.IsrModel(isr_model.Bounds(1, 2, superseded=1)),
    lambda: isr_model.IsrModel(isr_model.Bounds(2, 1, superseded=2, loses=False)),
    lambda: direct_model.DirectIsrModel(isr_model.Bounds(2, 3, minimum=1)),
    lambda: direct_model.DirectIsrModel(isr_model.Bounds(2, 3, minimum=2)),
    lambda: direct_model.DirectIsrModel(isr_model.Bounds(2, 2), is_mixed=True),
    lambda: failover_model.FailoverModel(failover_model.Bounds(2, 1, 2)),
    lambda: failover_model.FailoverModel(failover_model.Bounds(3, 1, 1)),
    lambda: bounce_model.BounceModel(bounce_model.Bounds(1, 1, losses=1, stops=1)),
    lambda: bounce_model.BounceModel(bounce_model.Bounds(1, 2, losses=1, stops=0)),
    lambda: bounce_model.BounceModel(
        bounce_model.Bounds(1, 2, losses=1, stops=0), tells_lives=False
    ),
    lambda: lake_model.LakeModel(lake_model.Bounds(2, 2, compactions=1)),
    lambda: upsert_model.UpsertModel(upsert_model.UpsertBounds(3, 1, compactions=1)),
    *(partial(directory_model.DirectoryModel, bounds) for bounds in DIRECTORIES),
    *(partial(reassignment_model.ReassignmentModel, bounds) for bounds in REASSIGNMENTS),
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Explore the models at larger bounds.")
    parser.add_argument("--limit", type=int, default=3_000_000, help="states (%(default)s)")
    options = parser.parse_args()
    for make in MODELS:
        if not look(make(), options.limit):
            return 1
    with in_force(LOG_VARIANTS["kip_320"]):
        sys.stdout.write("reconciled once in a term, apart from the fetch (KIP-320):\n")
        return 0 if look(log_model.LogModel(), options.limit) else 1


def look(model: Model, limit: int) -> bool:
    """Explore and tell; whether nothing is broken."""
    try:
        explored = explore(model, limit)
    except TooManyStatesError as error:
        sys.stdout.write(f"{error}: none of those explored breaks an invariant\n")
        return True
    sys.stdout.write(f"{explored}\n{explored.story}")
    sys.stdout.flush()
    return not explored.violations


if __name__ == "__main__":
    sys.exit(main())
