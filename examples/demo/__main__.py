"""`python -m examples.demo`."""

from __future__ import annotations

from examples.demo.command import main

if __name__ == "__main__":
    main()
