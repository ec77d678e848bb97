"""The command that installs an extra, for messages that name a missing one.

tidelog may have been installed from a checkout, where the package index has no such version. The
installer recorded the directory (`direct_url.json`, PEP 610). A source tree that is only on the
path is found beside this package.
"""

from __future__ import annotations

import json
import shlex
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

_NAME = "tidelog"


def install_command(extra: str) -> str:
    """Return the command that installs tidelog with an extra, from where tidelog itself came."""
    source = source_directory()
    what = f"{_NAME if source is None else source}[{extra}]"
    return f"pip install {shlex.quote(what)}"


def source_directory() -> Path | None:
    """Return the source tree that tidelog was installed from or runs in; None for the index."""
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
