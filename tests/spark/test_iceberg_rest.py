"""The contract of lake tables against Iceberg's own REST catalog."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.clients.absent import Absent
from tests.support.clients.jars import HERE, compiled, jars_of_iceberg
from tests.unit.spark.lake.test_lake_contract import REST

ROOT = Path(__file__).resolve().parents[2]
_VERSION = "1.9.2"
_LIMIT_S = 300


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[str]:
    """The URI of a catalog with a warehouse of its own."""
    try:
        jars = jars_of_iceberg(_VERSION)
        classes = compiled(HERE / "IcebergCatalog.java", jars)
    except Absent as absent:
        pytest.skip(str(absent))
    words = ["java", "-cp", f"{classes}:{jars}/*", "IcebergCatalog", str(tmp_path)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.stdin.close()
        server.wait(_LIMIT_S)


@pytest.mark.soak
def test_the_contract_holds_with_a_rest_catalog(catalog: str) -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    contract = "tests/unit/spark/lake/test_lake_contract.py"
    ended = subprocess.run(
        [*words, contract, "-k", "rest"],
        cwd=ROOT,
        env={**os.environ, REST: catalog},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert "failed" not in ended.stdout
