"""The distributions of this checkout, built once for all tests of the folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.pythons import distributions


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of sources."""
    return distributions.build(distributions.ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in the archive of sources, as a reader without the repository has it."""
    place = tmp_path_factory.mktemp("unpacked")
    shutil.unpack_archive(sdist, place, filter="data")
    [directory] = place.iterdir()
    return directory


@pytest.fixture(scope="session")
def wheel(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel with compiled modules, built from the archive of sources."""
    if not distributions.has_compiler():
        pytest.skip("no C compiler: a wheel with compiled modules cannot be built")
    return distributions.build(unpacked, "wheel", tmp_path_factory.mktemp("wheel"))
