"""One Spark session for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.support.client.fake_logs import FakeLogs

from tidelog.spark.session import start_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    log = tmp_path_factory.mktemp("spark") / "jvm.log"
    session = start_session("tidelog-tests", quick=True, log_path=str(log))
    yield session
    stop_session(session)  # its Java is waited for, and counts as CPU time of the tests


@pytest.fixture
def logs() -> Iterator[FakeLogs]:
    fake = FakeLogs()
    yield fake
    fake.close()
