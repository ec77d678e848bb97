"""What this machine lacks: a runtime, or the registry that a client comes from."""

from __future__ import annotations


class Absent(Exception):
    """The client's runtime, or the registry that it comes from, is not there; why."""
