"""Findings about a log directory: missing, not a broker's, in use, unclean shutdown, stray
replicas.

The functions are pure. Unlike `tidelog pipeline audit`, the functions do not examine the contents
of logs.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from tidelog.core.wording import counted
from tidelog.local.doctor.diagnosis import (
    Diagnosis,
    degraded,
    diagnosis,
    notice,
    some,
    unavailable,
    unread,
)
from tidelog.local.doctor.directory_facts import DirectoryFacts
from tidelog.local.doctor.machine_facts import MachineFacts
from tidelog.local.doctor.machine_findings import of_machine
from tidelog.local.health import Finding


def examine_directory(facts: DirectoryFacts, machine: MachineFacts) -> Diagnosis:
    """Return the diagnosis of a log directory, and of the machine on which its broker runs."""
    if facts.trouble:
        message = f"{facts.path} cannot be examined: {facts.trouble}"
        remedy = (
            f"ls -ld {shlex.quote(facts.path)}; a log directory of a broker, a cluster's directory"
            " or a configuration file expected"
        )
        finding = unread("directory_unreadable", message, remedy)
        return diagnosis("directory", facts.path, [finding])
    return diagnosis("directory", facts.path, [*of_directory(facts), *of_machine(machine)])


def of_directory(facts: DirectoryFacts) -> Iterator[Finding]:
    """Yield the findings about a readable log directory."""
    path = shlex.quote(facts.path)
    if facts.owner_trouble:
        message = f"{facts.path}/meta.properties cannot be used: {facts.owner_trouble}"
        remedy = (
            "its broker does not start: compare it with that of another log directory of the"
            f" broker; cat {path}/meta.properties"
        )
        yield unavailable("owner_unreadable", message, remedy)
    elif facts.owner is None and facts.foreign and not facts.replicas:
        message = f"{facts.path} is no log directory: it holds {some(facts.foreign)}"
        remedy = "name another directory; log.dirs in server.properties has those of a broker"
        yield unavailable("directory_foreign", message, remedy)
        return
    elif facts.owner is None and facts.replicas:
        message = (
            f"{facts.path} has {counted(facts.replicas, 'replica')} and no meta.properties: no"
            " broker is known to own it"
        )
        remedy = (
            "bring meta.properties back from a copy, or from another log directory of its broker"
        )
        yield degraded("owner_missing", message, remedy)
    elif facts.owner is None:
        message = f"{facts.path} is empty: a broker would begin it as a new log directory"
        yield notice(
            "directory_new", message, f"if records are expected there: mount | grep {path}"
        )
    if not facts.is_writable and facts.holder is None:
        message = f"{facts.path} is not writable for this user, as whom no broker could start"
        remedy = (
            f"ls -ld {path}; examine it as the user of its broker, and give it to that user if it"
            " is another's"
        )
        yield unavailable("directory_not_writable", message, remedy)
    if facts.foreign:
        message = f"{facts.path} has entries that no broker writes: {some(facts.foreign)}"
        yield notice(
            "directory_entries", message, f"look at them, and move them away: ls -l {path}"
        )
    yield from _life(facts, path)


def _life(facts: DirectoryFacts, path: str) -> Iterator[Finding]:
    """Yield findings about files and locks that the last or present process of the broker left."""
    if facts.holder is not None:
        message = f"process {facts.holder} uses {facts.path}: the findings are those of a moment"
        remedy = "examine its cluster, too: tidelog doctor -b HOST:PORT, or --dir DIRECTORY"
        yield notice("directory_in_use", message, remedy)
    elif facts.replicas and not facts.is_clean:
        message = (
            f"{facts.path} was not closed cleanly: the next start recovers what was not flushed of"
            f" {counted(facts.replicas, 'replica')}"
        )
        remedy = f"start its broker; to check the logs first: tidelog pipeline audit {path}"
        yield notice("directory_not_clean", message, remedy)
    if facts.strays:
        message = f"{facts.path} has {counted(facts.strays, 'replica')} set aside as strays"
        remedy = "with the broker up: tidelog strays list; restore them, or delete them"
        yield notice("directory_strays", message, remedy)
    if facts.futures and facts.holder is None:
        message = (
            f"{facts.path} has {counted(facts.futures, 'future replica')}, copies by moves between"
            " log directories that go on after the start"
        )
        yield notice("directory_copies", message, "start its broker")
