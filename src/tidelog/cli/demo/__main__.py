"""`python -m tidelog.cli.demo`."""

from __future__ import annotations

from tidelog.cli.demo.command import main

if __name__ == "__main__":
    main()
