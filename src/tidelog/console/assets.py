"""The files of the front end, read once and served from memory, each with an ETag.

A request never opens a file by its name, so no request can reach another file on the disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable

from tidelog.core.dataclass import dataclass

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the front end; `tag` changes with its content."""

    content: bytes
    content_type: str
    tag: str


def load_assets() -> Mapping[str, Asset]:
    """Return the files of the front end by their path below `static`."""
    found: dict[str, Asset] = {}
    _collect(resources.files("tidelog.console") / "static", "", found)
    return found


def _collect(folder: Traversable, prefix: str, found: dict[str, Asset]) -> None:
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            _collect(entry, f"{name}/", found)
            continue
        kind = _TYPES.get(f".{name.rpartition('.')[2]}")
        if kind is not None:
            content = entry.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
            found[name] = Asset(content, kind, tag)
