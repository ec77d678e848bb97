"""The contract of lake tables against Iceberg's own REST catalog."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.clients.absent import Absent
from tests.support.rest_catalog import REST, rest_catalog

ROOT = Path(__file__).resolve().parents[2]
_LIMIT_S = 300


@pytest.mark.soak
def test_the_contract_holds_with_a_rest_catalog(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    contract = "tests/unit/spark/lake/test_lake_contract.py"
    try:
        with rest_catalog(tmp_path) as uri:
            ended = subprocess.run(
                [*words, contract, "-k", REST],
                cwd=ROOT,
                env={**os.environ, REST: uri},
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                check=False,
            )
    except Absent as absent:
        pytest.skip(str(absent))
    assert ended.returncode == 0, ended.stdout
