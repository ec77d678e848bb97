"""Iceberg's own REST catalog, for tests of tables in it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.clients.jars import HERE, compiled, jars_of_iceberg

#: The variable with the URI of a catalog; without it only the embedded catalog is tried.
REST: Final = "TIDELOG_TEST_ICEBERG_REST"
_VERSION: Final = "1.9.2"
_LIMIT_S: Final = 60


@contextmanager
def rest_catalog(directory: Path) -> Iterator[str]:
    """Yield the URI of a catalog whose warehouse is a directory. Raises Absent."""
    jars = jars_of_iceberg(_VERSION)
    classes = compiled(HERE / "IcebergCatalog.java", jars)
    words = ["java", "-cp", f"{classes}:{jars}/*", "IcebergCatalog", str(directory)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.stdin.close()
        server.wait(_LIMIT_S)
