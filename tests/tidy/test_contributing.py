"""CONTRIBUTING.md names files, commands and markers that exist."""

from __future__ import annotations

import re

from tests.tidy.sources import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_files_and_folders_exist() -> None:
    words = re.findall(r"(?<![\w<./])((?:src|tests|docs)/[\w/.-]*\w)", TEXT)
    assert len(words) > 15
    missing = [word for word in dict.fromkeys(words) if not (ROOT / word).exists()]
    assert missing == []


def test_commands_name_modules_and_parts_that_exist() -> None:
    modules = re.findall(r"-m (tests\.[\w.]+)", TEXT)
    assert len(modules) == 5
    for module in modules:
        path = ROOT / module.replace(".", "/")
        path = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
        assert 'if __name__ == "__main__":' in path.read_text(encoding="utf-8"), module
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?:`|    )make (\w+)", TEXT):
        assert f"\n{target}:" in targets, target
