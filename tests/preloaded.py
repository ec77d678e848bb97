"""What the starts of `tidelog` in tests have in common, loaded once by the server that forks them.

A command with an option is parsed here, because the library of the command line loads half of
itself when it parses its first command, and the other half, which checks values, when it has the
first value. The parse ends with a usage error, so that the command does nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import io

import tidelog.runtime.main
import tidelog.runtime.stores.sqlite  # noqa: F401 (loaded for the processes)
from tidelog.cli.app import command_tree

_COMMANDS = (
    "brokers clusters configs dumps events faults groups health log_dirs metrics partitions"
    " produce consume reassign stores strays topics"
)

for name in _COMMANDS.split():
    importlib.import_module(f"tidelog.cli.{name}")
with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):
    command_tree("topics")(["topics", "list", "--timeout", "no number"])
