"""The import contracts in pyproject.toml know every package, and brokers stay light."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib

import pytest
from tests.tidy.sources import PACKAGES, ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
CONTRACTS = SETTINGS["contracts"]
#: Where calls to the outside are the purpose.
OUTSIDE = ("cli", "console", "testing", "spark", "local", "sim", "runtime")
#: Never loaded by a broker: each costs memory and time in every process.
NOT_IN_BROKERS = (
    "typer",
    "rich",
    "click",
    "pyspark",
    "pyarrow",
    "pandas",
    "numpy",
    "matplotlib",
    "confluent_kafka",
    "starlette",
    "uvicorn",
    "tidelog.cli",
    "tidelog.console",
    "tidelog.local",
    "tidelog.sim",
    "tidelog.spark",
    "tidelog.testing",
)


def packages() -> list[str]:
    return sorted(
        path.parent.name
        for path in (PACKAGES / "tidelog").glob("*/__init__.py")
        if path.parent.name != "__pycache__"
    )


def contract(start: str) -> dict[str, list[str]]:
    return next(entry for entry in CONTRACTS if entry["name"].startswith(start))


def test_every_package_from_broker_down_is_kept_from_the_outside() -> None:
    bound = contract("From broker down")["source_modules"]
    assert bound == [name for name in bound if name.removeprefix("tidelog.") in packages()]
    assert [
        name for name in packages() if name not in OUTSIDE and f"tidelog.{name}" not in bound
    ] == []


def test_circles_are_looked_for_among_imports_of_types_too() -> None:
    """A module that needs another one's types only is tied to it all the same."""
    assert "exclude_type_checking_imports" not in SETTINGS
    assert "ignore_imports" not in contract("No circles of imports")


@pytest.mark.skipif(
    not (PACKAGES / "tidelog/runtime/main.py").exists(), reason="brokers cannot be started yet"
)
def test_a_broker_loads_no_library_of_the_command_line_or_of_spark() -> None:
    listing = "import sys, tidelog.runtime.main; print('\\n'.join(sorted(sys.modules)))"
    loaded = subprocess.run(
        [sys.executable, "-c", listing],
        env={**os.environ, "PYTHONPATH": str(PACKAGES)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert "tidelog.core.config" in loaded
    assert [
        name
        for name in loaded
        for unwanted in NOT_IN_BROKERS
        if name == unwanted or name.startswith(unwanted + ".")
    ] == []
