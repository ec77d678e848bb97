"""Ways in which one log directory of a real broker fails, and is in order again (D1, D18).

A file in its place needs nothing: every operation on a name fails with ENOTDIR. A preloaded shim
makes every call fail with EIO; it needs a C compiler. A file system in an image that the kernel
aborts takes no more writes, with EROFS; it needs root and a loop device. So does a volume that is
not mounted at the next start.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import pytest

SOURCE = Path(__file__).with_name("failing_disk.c")
_IMAGE_BYTES = 96 << 20


class FailingDisk(Protocol):
    """A log directory that can fail. To be made, and healed, while its broker is down."""

    #: Of the broker whose directory it is.
    environment: Mapping[str, str]

    def fail(self) -> None:
        """Let it fail from now on."""

    def heal(self) -> None:
        """Let it work again, with its files."""

    def close(self) -> None:
        """Leave nothing behind but files."""


class FileInPlace:
    """The directory is moved away, and a file takes its place."""

    environment: Mapping[str, str] = {}

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._away = directory.with_name("away")

    def fail(self) -> None:
        """See FailingDisk."""
        self._directory.rename(self._away)
        self._directory.write_text("no directory\n")

    def heal(self) -> None:
        """See FailingDisk."""
        self._directory.unlink()
        self._away.rename(self._directory)

    def close(self) -> None:
        """See FailingDisk."""


class DeadDevice:
    """Every call below the directory fails with EIO (`failing_disk.c`)."""

    def __init__(self, directory: Path, place: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("no C compiler for the shim that fails file calls")
        library, self._flag = place / "failing_disk.so", place / "dead"
        words = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(words, check=True)
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": str(library),
            "TIDELOG_FAIL_FLAG": str(self._flag),
            "TIDELOG_FAIL_DIR": str(directory),
        }

    def fail(self) -> None:
        """See FailingDisk."""
        self._flag.touch()

    def heal(self) -> None:
        """See FailingDisk."""
        self._flag.unlink()

    def close(self) -> None:
        """See FailingDisk."""


class AbortedFileSystem:
    """A file system of its own in an image; the kernel aborts it on demand."""

    environment: Mapping[str, str] = {}

    def __init__(self, directory: Path, place: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root may mount a file system")
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("no mkfs.ext4 to make a file system with")
        self._directory, self._image = directory, place / "image"
        with self._image.open("wb") as file:
            file.truncate(_IMAGE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", str(self._image)], check=True)
        before = directory.rename(place / "before")
        directory.mkdir()
        self._is_mounted = False
        try:
            self._mount()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no file system can be mounted here: {error.stderr}")
        shutil.rmtree(directory / "lost+found")
        shutil.copytree(before, directory, dirs_exist_ok=True)

    def _mount(self) -> None:
        words = ["mount", "-o", "loop,errors=remount-ro", str(self._image), str(self._directory)]
        subprocess.run(words, check=True, capture_output=True, text=True)
        self._is_mounted = True

    def fail(self) -> None:
        """See FailingDisk."""
        subprocess.run(["mount", "-o", "remount,abort", str(self._directory)], check=True)

    def heal(self) -> None:
        """See FailingDisk."""
        self.close()
        # 1: errors were corrected.
        words = ["e2fsck", "-fy", str(self._image)]
        found = subprocess.run(words, check=False, capture_output=True, text=True)
        assert found.returncode in (0, 1), found.stdout
        self._mount()

    def close(self) -> None:
        """See FailingDisk."""
        if self._is_mounted:
            subprocess.run(["umount", str(self._directory)], check=True)
            self._is_mounted = False


class UnmountedVolume(AbortedFileSystem):
    """A file system of its own in an image, which is not mounted at the next start."""

    def fail(self) -> None:
        """See FailingDisk."""
        self.close()

    def heal(self) -> None:
        """See FailingDisk."""
        self._mount()


#: The one way that shows only at a start.
UNMOUNTED = "an unmounted volume"
#: Name of a way -> the disk that fails so, from its directory and a place for its own files.
WAYS: Mapping[str, Callable[[Path, Path], FailingDisk]] = {
    "a file in its place": lambda directory, place: FileInPlace(directory),
    "EIO": DeadDevice,
    "an aborted file system": AbortedFileSystem,
    UNMOUNTED: UnmountedVolume,
}
