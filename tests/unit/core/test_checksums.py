"""The CRC-32C that all batches carry: the same function whichever way it was loaded."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import crc32c as package
import pytest

from tidelog.core import checksums


def test_it_is_the_check_value_of_the_standard_for_every_kind_of_buffer() -> None:
    data = b"123456789"
    for buffer in (data, bytearray(data), memoryview(data)):
        assert checksums.crc32c(buffer) == 0xE3069283 == package.crc32c(buffer)


def test_without_the_compiled_module_under_its_name_the_package_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert checksums._loaded() is package.crc32c


def test_brokers_do_not_import_the_package_with_its_command_line() -> None:
    code = (
        "import sys, tidelog.runtime.main, tidelog.runtime.stores.sqlite;"
        "sys.exit(' '.join({'crc32c', 'argparse', 'email', 'zipfile'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, check=False)
    assert found.returncode == 1 and found.stderr == b"\n", found.stderr
