"""Errors of a local cluster, except the errors in its brokers' responses.

A message names the broker or directory and the reason; the message for an ended broker also has the
last lines of the broker's log. The command line maps errors of a local cluster to exit codes.
"""

from __future__ import annotations

from tidelog.core.errors import TidelogError


class LocalClusterError(TidelogError):
    """The error for a failed operation on a local cluster, such as a broker that does not start."""
