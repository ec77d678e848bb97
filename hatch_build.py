"""Build hook: compiles the sources of WITHOUT where a C compiler is present, and writes the SBOM.

The modules use the limited C API of CPython 3.11, so that one wheel (`cp311-abi3`) serves 3.11 and
all later versions; an interpreter without GIL gets modules of its own version. Each compiled file
lies beside its source, where an editable install finds it. Without a compiler, or with
TIDELOG_NO_EXTENSION=1, the wheel is one of Python alone (`py3-none-any`): brokers then walk records
in Python, and log so at their start; Spark's tasks decode with numpy.

`python hatch_build.py` compiles all in place, and says which one is missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import uuid
from collections.abc import Iterable, Mapping
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
#: The limited C API of the oldest Python (PEP 384); an interpreter without GIL has none.
HAS_LIMITED_API = not sysconfig.get_config_var("Py_GIL_DISABLED")
OWN_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
SUFFIX = ".abi3.so" if HAS_LIMITED_API else OWN_SUFFIX
LIMITED = ("-DPy_LIMITED_API=0x030b0000",) if HAS_LIMITED_API else ()


def compiled(source: Path, root: Path = ROOT, into: Path | None = None) -> Path | None:
    """Compile an extension beside its source, or into another directory.

    Returns the file; None, with the reason printed, where it could not be compiled.
    """
    missing = f"tidelog: {source.name} is not compiled, so {WITHOUT[source]}"
    if os.environ.get("TIDELOG_NO_EXTENSION"):
        print(f"{missing}: TIDELOG_NO_EXTENSION is set")
        return None
    target = (into or root / source.parent) / (source.stem + SUFFIX)
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    # Written beside and renamed: a process that has loaded the former file keeps it.
    handle, draft = tempfile.mkstemp(dir=target.parent, suffix=".so.tmp")
    os.close(handle)
    include = f"-I{sysconfig.get_paths()['include']}"
    words = [*compiler, *FLAGS, *LIMITED, include, str(root / source), "-o", draft]
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
    if OWN_SUFFIX != SUFFIX:  # Python would load a file of its own version in place of this one
        target.with_name(source.stem + OWN_SUFFIX).unlink(missing_ok=True)
    return target


def bill_of_materials(
    version: str, requirements: Iterable[str], modules: Mapping[str, bytes]
) -> dict[str, Any]:
    """Return the SBOM of a wheel as CycloneDX 1.6: what is inside, and what it needs from outside.

    `modules` has the compiled files by their paths in the wheel. Nothing of others is inside. Equal
    contents give an equal document: it has no time, and its serial number is drawn from the rest.
    """
    project = f"pkg:pypi/tidelog@{version}"
    files = [
        {
            "type": "file",
            "bom-ref": path,
            "name": path,
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}],
            "licenses": [{"license": {"id": "Apache-2.0"}}],
        }
        for path, content in sorted(modules.items())
    ]
    document: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "component": {
                "type": "library",
                "bom-ref": project,
                "name": "tidelog",
                "version": version,
                "purl": project,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "components": files,
                "properties": [
                    {"name": "tidelog:requires", "value": each} for each in requirements
                ],
            },
        },
        "compositions": [{"aggregate": "complete", "assemblies": [project]}],
    }
    content = json.dumps(document, sort_keys=True)
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, project + content).urn
    return document


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a script, where hatchling is not installed
    pass
else:

    class CustomBuildHook(BuildHookInterface[Any]):
        """Called by hatchling for wheels and editable installs."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Compile the modules; a wheel gets the compiled files, its tag and its SBOM."""
            root = Path(self.root)
            found = {source: compiled(source, root) for source in WITHOUT}
            if version == "editable":
                return
            modules: dict[str, bytes] = {}
            for source, target in found.items():
                if target is not None:
                    place = source.relative_to("src").with_name(target.name).as_posix()
                    build_data["force_include"][str(target)] = place
                    modules[place] = target.read_bytes()
            if modules:
                build_data["pure_python"] = False
                build_data["infer_tag"] = not HAS_LIMITED_API
                if HAS_LIMITED_API:
                    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
                    build_data["tag"] = f"cp311-abi3-{platform}"
            self._write_bill(modules, build_data)

        def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
            """Remove the file of the SBOM, which is in the wheel."""
            for each in build_data["sbom_files"]:
                shutil.rmtree(os.path.dirname(each))

        def _write_bill(self, modules: Mapping[str, bytes], build_data: dict[str, Any]) -> None:
            metadata = self.metadata
            bill = bill_of_materials(metadata.version, metadata.core.dependencies, modules)
            file = Path(tempfile.mkdtemp(prefix="tidelog-sbom-"), "tidelog.cdx.json")
            file.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            build_data["sbom_files"].append(str(file))


if __name__ == "__main__":
    sys.exit(None in [compiled(source) for source in WITHOUT])
