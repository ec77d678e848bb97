"""The documentation site as `make site` builds it: whole, searchable, without another address."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.guide.documents import ROOT
from website.pages import ROOT_PAGES

_LOADED = re.compile(
    r"<(?:link|script|img|iframe)\b[^>]*(?:src|href)=[\"']?((?:https?:)?//[^\s\"'>]+)"
)


@pytest.mark.soak
def test_the_site_is_built_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    lock = ["install", "-q", "--require-hashes", "-r", "website/requirements.lock"]
    python = str(tmp_path / "env" / "bin" / "python")
    site = tmp_path / "site"
    for words in (
        [sys.executable, "-m", "venv", str(tmp_path / "env")],
        [python, "-m", "pip", "--disable-pip-version-check", *lock],
        [python, "-m", "mkdocs", "build", "--strict", "-f", "website/mkdocs.yml", "-d", str(site)],
    ):
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    built = {path.relative_to(site).as_posix(): path for path in site.rglob("*.html")}
    sources = list((ROOT / "docs").rglob("*.md"))
    assert len(built) >= len(sources) + len(ROOT_PAGES) > 100
    elsewhere = {
        name: found
        for name, path in built.items()
        if (found := _LOADED.findall(path.read_text(encoding="utf-8")))
    }
    assert elsewhere == {}
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"url\([\"']?(?:https?:)?//", styles) == []
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert any("min.insync.replicas" in each["text"] for each in index["docs"])
