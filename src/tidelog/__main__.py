"""`python -m tidelog` is the command line."""

from __future__ import annotations

from tidelog.cli import main

if __name__ == "__main__":
    main()
