"""The lender of the cluster that all workers of pytest-xdist share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.local import LocalClusterError
from tidelog.testing.cluster import Cluster
from tidelog.testing.spec import ClusterSpec
from tidelog.testing.workers import ClusterLender, borrowed


def test_every_worker_learns_why_no_cluster_starts(tmp_path: Path) -> None:
    def broken(directory: str) -> Cluster:
        raise RuntimeError(f"nothing starts in {directory}")

    lender = ClusterLender(broken)
    for worker in (0, 1):
        with pytest.raises(LocalClusterError, match="nothing starts in /"):
            borrowed(lender.workerinput, str(tmp_path), ClusterSpec(), worker)
    lender.close()
