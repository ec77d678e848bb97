"""Inputs as text, in hexadecimal digits: `corpus/<target>/`.

`kept.txt` has an input a line: those that reach what seeds do not. Inputs that a target failed on
have files of their own, with comments that say how to run them again or, once they are named
`fixed-...`, what was wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"
_KEPT = "kept.txt"
_LINE = 96


def name_of(data: bytes) -> str:
    """What an input is called: the beginning of its hash."""
    return hashlib.sha256(data).hexdigest()[:12]


def kept(folder: Path) -> list[bytes]:
    """The inputs that are kept in a target's folder; ValueError for a line that is none."""
    path = folder / _KEPT
    lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
    return [_from_hex(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]


def keep(folder: Path, inputs: Iterable[bytes]) -> None:
    """Write the inputs that are kept, each once, so that a change is a change of lines."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = sorted({data.hex() for data in inputs}, key=lambda line: (len(line), line))
    (folder / _KEPT).write_text("\n".join(lines) + "\n", encoding="ascii")


def write(path: Path, data: bytes, comment: str) -> None:
    """Write an input into a file of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digits = data.hex()
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += [digits[at : at + _LINE] for at in range(0, len(digits), _LINE)]
    path.write_text("\n".join(lines) + "\n", encoding="ascii", errors="backslashreplace")


def read(path: Path) -> bytes:
    """The input of a file; ValueError for what is none."""
    lines = path.read_text(encoding="ascii").splitlines()
    return _from_hex("".join(line for line in lines if not line.startswith("#")), str(path))


def inputs(target: str) -> Iterator[tuple[str, bytes]]:
    """All inputs of a target with their names."""
    folder = CORPUS / target
    for data in kept(folder):
        yield name_of(data), data
    for path in sorted(folder.glob("*.txt")):
        if path.name != _KEPT:
            yield path.stem, read(path)


def _from_hex(digits: str, where: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
