"""What can go wrong with a local cluster, beyond what its brokers answer.

The messages are for people: they name the broker or the directory, the reason, and where a broker
ended, the last lines of its log. Knows nothing of exit codes; the command line maps them.
"""

from __future__ import annotations

from tidelog.core.errors import TidelogError


class LocalClusterError(TidelogError):
    """The directory holds no cluster, a broker does not start, a process cannot be reached."""
