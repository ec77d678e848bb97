"""Messages name a command that installs what is missing, wherever tidelog came from."""

from __future__ import annotations

import json
import shlex
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from tidelog.runtime import extras
from tidelog.runtime.extras import install_command

ROOT = Path(__file__).resolve().parents[3]


class _Distribution:
    def __init__(self, direct_url: str | None) -> None:
        self._direct_url = direct_url

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self._direct_url


def installed_from(monkeypatch: pytest.MonkeyPatch, direct_url: str | None, here: Path) -> None:
    """tidelog lies in a directory without sources around it, and was installed from a URL."""
    monkeypatch.setattr(metadata, "distribution", lambda name: _Distribution(direct_url))
    monkeypatch.setattr(extras, "__file__", str(here / "a/b/c/extras.py"))


def test_a_checkout_is_named_with_its_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    checkout = tmp_path / "with space"
    checkout.mkdir()
    (checkout / "pyproject.toml").write_text("")
    url = json.dumps({"url": checkout.as_uri(), "dir_info": {}})
    installed_from(monkeypatch, url, tmp_path / "site-packages")
    assert shlex.split(install_command("spark")) == ["pip", "install", f"{checkout}[spark]"]


@pytest.mark.parametrize("url", [None, "{}", "nonsense", '{"url": "https://host/tidelog.whl"}'])
def test_what_came_from_an_index_is_named_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str | None
) -> None:
    installed_from(monkeypatch, url, tmp_path / "site-packages")
    assert install_command("testing") == "pip install 'tidelog[testing]'"


def test_a_source_tree_on_the_path_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    words = shlex.split(install_command("spark"))
    assert words[-1] == f"{ROOT}[spark]"


def test_every_extra_that_a_message_or_guide_names_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = project["optional-dependencies"]
    named = []
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]:
        text = path.read_text()
        # Nothing is published yet: the index would give another project's package, or none.
        assert "pip install 'tidelog[" not in text, path
        assert 'pip install "tidelog[' not in text, path
        for each in text.split("pip install '.[")[1:]:
            named += each.partition("]")[0].split(",")
        named += [each.partition('"')[0] for each in text.split('install_command("')[1:]]
    assert len(named) >= 5
    assert [each for each in named if each not in known] == []
