"""Mutilations drawn from a seed: every mutilation in turn, each at another place."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.support.audits import audited
from tests.support.mutilations import batches, directories, segments
from tests.support.mutilations.sites import MUTILATIONS, PARTITIONS, TOPICS, Mutilation, Site

from tidelog.core.types import TopicPartition
from tidelog.spark.pipelines.audit.findings import AuditFinding

#: The modules that register mutilations when they are imported.
MODULES = (batches, segments, directories)


def drawn(seed: int, count: int) -> Iterator[tuple[Mutilation, random.Random]]:
    """Yield mutilations in a drawn order, each of them once before any comes again."""
    draw = random.Random(seed)
    order: list[Mutilation] = []
    for number in range(count):
        if not order:
            order = draw.sample(MUTILATIONS, len(MUTILATIONS))
        yield order.pop(), random.Random(f"{seed}/{number}")


def planted(
    mutilation: Mutilation, draw: random.Random, healthy: dict[bool, Path], root: Path
) -> tuple[Site, list[AuditFinding]]:
    """Plant damage in a copy of healthy directories; return the place and the audit's findings."""
    is_clean = mutilation.needs_clean
    if is_clean is None:
        is_clean = draw.random() < 0.5
    shutil.rmtree(root, ignore_errors=True)
    # Links are cheaper than copies; `Site.put` replaces a file and never writes into it.
    shutil.copytree(healthy[is_clean], root, copy_function=os.link)
    tp = TopicPartition(draw.choice(TOPICS), draw.randrange(PARTITIONS))
    site = Site(root, draw, is_clean, tp, draw.randrange(1, 4))
    mutilation.plant(site)
    return site, audited(root).all_findings()
