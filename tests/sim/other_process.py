"""Runs a module that prints `seed hash` lines in another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def hashes_of(module: str, seeds: list[int], hash_seed: str) -> dict[int, str]:
    """The trace hashes of seeds, in their order, under another PYTHONHASHSEED."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, seeds)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
    )
    return {int(seed): value for seed, value in map(str.split, done.stdout.splitlines())}
