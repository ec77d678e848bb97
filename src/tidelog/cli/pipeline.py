"""`tidelog pipeline`: the group that collects the verbs of `tidelog.cli.pipelines`.

A module of `tidelog.cli.pipelines` adds its verbs with its function `add_to`. Spark and Arrow are
an extra (`spark` of pyproject.toml): no module loads them before its command runs.
"""

from __future__ import annotations

from tidelog.cli.help import CommandGroup
from tidelog.cli.pipelines import analyze, audit, copy, ingest, plan, prove, simulate

app = CommandGroup("Data pipelines on Spark.")

for verbs in (analyze, audit, copy, ingest, plan, prove, simulate):
    verbs.add_to(app)
