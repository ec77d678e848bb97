"""The command that installs an extra, for error messages about a missing extra.

If tidelog was installed from a checkout, the package index may not have its version. The installer
records the directory of a checkout in `direct_url.json` (PEP 610). A source tree that is only on
the Python path is found from this package's own location.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

_NAME = "tidelog"


def install_command(extra: str) -> str:
    """Return the command that installs tidelog with an extra, from the same checkout or package
    index as this tidelog.
    """
    source = source_directory()
    what = f"{_NAME if source is None else source}[{extra}]"
    return f"pip install {shlex.quote(what)}"


def missing_module(*names: str) -> str | None:
    """Return the first of these modules that is not installed; None if all of them are."""
    return next((each for each in names if importlib.util.find_spec(each) is None), None)


def source_directory() -> Path | None:
    """Return the source tree of this tidelog, or None if it came from the package index."""
    beside = Path(__file__).resolve().parents[3]
    candidates = [_recorded(), beside]
    for path in candidates:
        if path is not None and (path / "pyproject.toml").is_file():
            return path
    return None


def _recorded() -> Path | None:
    try:
        text = metadata.distribution(_NAME).read_text("direct_url.json")
        url = urlsplit(str(json.loads(text or "{}").get("url", "")))
    except (metadata.PackageNotFoundError, ValueError):
        return None
    return Path(unquote(url.path)) if url.scheme == "file" else None
