"""Runs a module that prints `seed hash` lines in another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def hashes_of(module: str, seeds: list[int], hash_seed: str) -> dict[int, str]:
    """The trace hashes of seeds, in their order, under another PYTHONHASHSEED."""
    lines = lines_of(module, [str(seed) for seed in seeds], hash_seed)
    return {int(seed): value for seed, value in lines}


def lines_of(module: str, words: list[str], hash_seed: str) -> list[tuple[str, str]]:
    """The two words of each line that a module prints, under another PYTHONHASHSEED."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
    )
    pairs = (line.split() for line in done.stdout.splitlines())
    return [(first, second) for first, second in pairs]
