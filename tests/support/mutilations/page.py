"""`python -m tests.support.mutilations.page` writes docs/reference/audit.md.

The page lists each invariant of a log directory, the damage that tests plant against it, and the
finding. `text` is the page; a test compares it with the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.support.mutilations.drawing import MODULES
from tests.support.mutilations.sites import MUTILATIONS, Mutilation

from tidelog.spark.pipelines.audit.findings import Severity
from tidelog.spark.pipelines.audit.invariants import INVARIANTS

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "reference" / "audit.md"

_HEAD: Final = """# Invariants of a log directory

`tidelog pipeline audit` checks these invariants of the log directories of brokers
([guide](../guide/spark.md#audit-log-directories)). Each row has the damage that a test plants at
many places, and the kind of the finding that shows it. This file is made by
`python -m tests.support.mutilations.page`.

A finding is *damage*, which makes the audit fail, or a *notice*. Some states are what a crash or a
truncation leaves. They are damage only after a clean shutdown; otherwise they are a notice, because
the next start of the broker repairs them.

| kind | invariant | planted damage | finding |
|---|---|---|---|
"""

_FOOT: Final = """
## What the audit cannot know

- Without a running cluster, the ISR is unknown. A replica that ends below another replica's high
  watermark, and not below its own, may be outside the ISR.
- Without a running cluster, retention is unknown. A replica that begins late is a notice if any
  other broker's replica of the topic has lost its first segments too.
- A checkpoint of a broker that runs or crashed may be behind the log. An offset in it that is too
  low is found only after a clean shutdown.
- An offset index is sparse. An index without some of its entries is valid, and lookups only read
  more of the log. An entry may also name any offset up to the batch of the next entry.
- A time index entry may name any offset of its batch.
- A topic with one replica has no other replica to compare with. A lost first segment is then found
  only after a clean shutdown, by the checkpointed log start.
- A power loss may lose records that were not flushed. The audit reports a replica that ends below
  its own high watermark as damage, because this replica has lost committed records.
- The audit checks checksums and does not decode the records of batches in which all replicas agree.
"""


def text() -> str:
    """Return the page."""
    assert MODULES, "the mutilations are registered"
    rows = []
    for kind, invariant in INVARIANTS.items():
        some = [each for each in MUTILATIONS if each.kind is kind]
        planted = [each.damage for each in some] or ["files that change during the audit"]
        damage = " ".join(f"{each[0].upper()}{each[1:]}." for each in planted)
        said = dict.fromkeys(_severity(each) for each in some) or {"notice": None}
        rows.append(f"| {kind.value} | {invariant} | {damage} | {'; '.join(said)} |\n")
    return f"{_HEAD}{''.join(rows)}{_FOOT}"


def _severity(mutilation: Mutilation) -> str:
    crashed, clean = mutilation.severities
    if crashed is clean or mutilation.needs_clean is not None:
        return clean.value
    assert (crashed, clean) == (Severity.NOTICE, Severity.DAMAGE)
    return "damage after a clean shutdown, otherwise a notice"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
