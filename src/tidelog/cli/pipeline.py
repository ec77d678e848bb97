"""`tidelog pipeline`: the group that collects the verbs of `tidelog.cli.pipelines`.

A module of that package adds its verbs with `add_to`. Spark and Arrow are an extra (`spark` of
pyproject.toml): no module loads them before its command runs.
"""

from __future__ import annotations

from tidelog.cli.help import CommandGroup
from tidelog.cli.pipelines import audit, copy, ingest, simulate

app = CommandGroup("Data pipelines on Spark.")

for verbs in (audit, ingest, simulate, copy):
    verbs.add_to(app)
