"""Build hook: compiles the sources of WITHOUT where a C compiler is present.

Each compiled file lies beside its source, where an editable install finds it, and goes into a
wheel. Without a compiler, or with TIDELOG_NO_EXTENSION=1, the install succeeds without the files:
brokers then walk records in Python, and log so at their start; Spark's tasks decode with numpy.
`python hatch_build.py` compiles all in place, and says which one is missing.
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
WALK = Path("src/tidelog/records/_walk.c")
ROWS = Path("src/tidelog/spark/_rows.c")
SCAN = Path("src/tidelog/spark/segments/_scan.c")
#: Each source, and what happens without it.
WITHOUT = {
    WALK: "brokers walk records in Python",
    ROWS: "Spark's tasks decode and encode records in Python",
    SCAN: "audits scan log files in Python",
}
FLAGS = ("-O2", "-std=c11", "-fPIC", "-shared", "-Wall", "-Wextra", "-fno-strict-overflow")


def compiled(source: Path, root: Path = ROOT, into: Path | None = None) -> Path | None:
    """Compile an extension beside its source, or into another directory.

    Returns the file; None, with the reason printed, where it could not be compiled.
    """
    missing = f"tidelog: {source.name} is not compiled, so {WITHOUT[source]}"
    if os.environ.get("TIDELOG_NO_EXTENSION"):
        print(f"{missing}: TIDELOG_NO_EXTENSION is set")
        return None
    suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
    target = (into or root / source.parent) / (source.stem + suffix)
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    # Written beside and renamed: a process that has loaded the former file keeps it.
    handle, draft = tempfile.mkstemp(dir=target.parent, suffix=".so.tmp")
    os.close(handle)
    include = f"-I{sysconfig.get_paths()['include']}"
    words = [*compiler, *FLAGS, include, str(root / source), "-o", draft]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
        failure = done.stderr.strip() or f"exit code {done.returncode}" if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        failure = str(error) or type(error).__name__
    if failure:
        os.unlink(draft)
        print(f"{missing}: {words[0]} failed: {failure}")
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
            for source in WITHOUT:
                target = compiled(source, Path(self.root))
                if target is not None and version != "editable":
                    place = source.relative_to("src").with_name(target.name)
                    build_data["pure_python"] = False
                    build_data["infer_tag"] = True
                    build_data["force_include"][str(target)] = place.as_posix()


if __name__ == "__main__":
    sys.exit(None in [compiled(source) for source in WITHOUT])
