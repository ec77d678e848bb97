"""Build hook: compiles `tidelog/records/_walk.c` where a C compiler is present.

The compiled file lies beside its source, where an editable install finds it, and goes into a wheel.
Without a compiler, or with TIDELOG_NO_EXTENSION=1, the install succeeds without the file: brokers
then walk records in Python, and log so at their start. `python hatch_build.py` compiles in place.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
SOURCE = Path("src/tidelog/records/_walk.c")
FLAGS = ("-O2", "-std=c11", "-fPIC", "-shared", "-Wall", "-Wextra", "-fno-strict-overflow")


def compiled(root: Path = ROOT, into: Path | None = None) -> Path | None:
    """Compile the extension beside its source, or into another directory.

    Returns the file; None, with the reason printed, where it could not be compiled.
    """
    if os.environ.get("TIDELOG_NO_EXTENSION"):
        print("tidelog: TIDELOG_NO_EXTENSION is set: no compiled walk over records")
        return None
    source = root / SOURCE
    suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
    target = (into or source.parent) / (source.stem + suffix)
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    # Written beside and renamed: a process that has loaded the former file keeps it.
    handle, draft = tempfile.mkstemp(dir=target.parent, suffix=".so.tmp")
    os.close(handle)
    words = [*compiler, *FLAGS, f"-I{sysconfig.get_paths()['include']}", str(source), "-o", draft]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
        failure = done.stderr.strip() if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        failure = str(error) or type(error).__name__
    if failure:
        os.unlink(draft)
        print(f"tidelog: records are walked in Python, {words[0]} did not compile: {failure}")
        return None
    os.chmod(draft, 0o755)
    os.replace(draft, target)
    return target


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a script, where hatchling is not installed
    pass
else:

    class CustomBuildHook(BuildHookInterface[Any]):
        """Called by hatchling for wheels and editable installs."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            target = compiled(Path(self.root))
            if target is not None and version != "editable":
                build_data["pure_python"] = False
                build_data["infer_tag"] = True
                build_data["force_include"][str(target)] = f"tidelog/records/{target.name}"


if __name__ == "__main__":
    sys.exit(compiled() is None)
