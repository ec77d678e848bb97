"""The command line `tidelog`. `main` is the entry point; the library behind it loads only there."""

from __future__ import annotations


def main() -> None:
    """Run the command line and exit with its code."""
    from tidelog.cli.app import run

    run()
