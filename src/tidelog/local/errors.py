"""Errors of a local cluster, beyond the errors in its brokers' responses.

The messages are for people: they name the broker or the directory, the reason, and where a broker
ended, the last lines of its log. Knows nothing of exit codes; the command line maps them.
"""

from __future__ import annotations

from tidelog.core.errors import TidelogError


class LocalClusterError(TidelogError):
    """A failed operation: no cluster, a broker that does not start, no process to reach."""
