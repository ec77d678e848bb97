"""What is in the archive of sources and in wheels, and that building them asks no network."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tarfile
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import hatch_build
import pytest
from tests.pythons.distributions import ROOT, build
from tests.pythons.other_pythons import environment_of, others, run

import tidelog

NAME = f"tidelog-{tidelog.__version__}"
INFO = f"{NAME}.dist-info"
MODULES = [source.relative_to("src").with_suffix("") for source in hatch_build.WITHOUT]
COMPILED = [f"{module}{hatch_build.SUFFIX}" for module in MODULES]
#: Code, marks of types, and the files of the console; no sources in C, nothing that is made.
WRITTEN = sorted(
    path.relative_to(ROOT / "src").as_posix()
    for path in (ROOT / "src").rglob("*")
    if path.is_file() and path.suffix not in (".c", ".so", ".pyc", ".tmp")
)
METADATA = [
    f"{INFO}/{name}"
    for name in (
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
        "licenses/LICENSE",
        "sboms/tidelog.cdx.json",
    )
]


def names(wheel: Path) -> list[str]:
    with ZipFile(wheel) as archive:
        return sorted(archive.namelist())


def content(wheel: Path, name: str) -> bytes:
    with ZipFile(wheel) as archive:
        return archive.read(name)


def test_a_wheel_has_the_packages_the_compiled_modules_and_nothing_else(wheel: Path) -> None:
    platform = re.escape(os.uname().machine)
    assert re.fullmatch(rf"{re.escape(NAME)}-cp311-abi3-linux_{platform}\.whl", wheel.name)
    assert len(WRITTEN) > 500, "this test looks at nothing"
    assert names(wheel) == sorted([*WRITTEN, *COMPILED, *METADATA])
    assert b"Root-Is-Purelib: false" in content(wheel, f"{INFO}/WHEEL")
    described = message_from_bytes(content(wheel, f"{INFO}/METADATA"))
    assert described["Name"] == "tidelog" and described["License-Expression"] == "Apache-2.0"
    assert b"tidelog = tidelog.cli:main" in content(wheel, f"{INFO}/entry_points.txt")


def test_the_sbom_names_the_compiled_modules_by_their_hashes(wheel: Path) -> None:
    bill = json.loads(content(wheel, f"{INFO}/sboms/tidelog.cdx.json"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    project = bill["metadata"]["component"]
    assert project["purl"] == f"pkg:pypi/tidelog@{tidelog.__version__}"
    assert {each["name"]: each["hashes"][0]["content"] for each in project["components"]} == {
        name: hashlib.sha256(content(wheel, name)).hexdigest() for name in COMPILED
    }
    described = message_from_bytes(content(wheel, f"{INFO}/METADATA"))
    needed = [each for each in described.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert sorted(each["value"] for each in project["properties"]) == sorted(needed)
    assert len(needed) == 4


def test_equal_contents_have_an_equal_sbom() -> None:
    first = hatch_build.bill_of_materials("1.0", ["rich>=14"], {"a.so": b"a"})
    assert first == hatch_build.bill_of_materials("1.0", ["rich>=14"], {"a.so": b"a"})
    other = hatch_build.bill_of_materials("1.0", ["rich>=14"], {"a.so": b"b"})
    assert first["serialNumber"] != other["serialNumber"]


def test_the_archive_of_sources_has_what_builds_and_tests_it(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        found = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    needed = {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "PKG-INFO", "Makefile"}
    needed |= {f"src/{name}" for name in WRITTEN} | {str(each) for each in hatch_build.WITHOUT}
    needed |= {"tests/run.py", "requirements-test.lock", "docs/guide/testing.md"}
    assert sorted(needed - found) == []
    made = re.compile(r"\.so$|\.pyc$|(^|/)(\.venv|__pycache__|\.git/)")
    assert [name for name in found if made.search(name)] == []


@pytest.mark.soak
def test_a_wheel_of_python_alone_serves_records_and_says_what_is_slower(
    unpacked: Path, tmp_path: Path
) -> None:
    pure = build(unpacked, "wheel", tmp_path / "built", TIDELOG_NO_EXTENSION="1")
    assert pure.name == f"{NAME}-py3-none-any.whl"
    assert names(pure) == sorted([*WRITTEN, *METADATA])
    installed = str(tmp_path / "installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install"]
    run([*pip, "--no-deps", "--no-index", "--target", installed, str(pure)], 300)

    def tidelog_of_it(*words: str) -> str:
        return run([sys.executable, "-m", "tidelog", *words], 300, PYTHONPATH=installed)

    said = tidelog_of_it("--version")
    assert said.startswith(f"tidelog {tidelog.__version__}\n")
    assert "no compiled records/_walk" in said and "C compiler" in said
    directory = str(tmp_path / "cluster")
    try:
        tidelog_of_it("up", "-n", "1", "--dir", directory)
        tidelog_of_it("topics", "create", "first", "--partitions", "1", "--dir", directory)
        tidelog_of_it("produce", "first", "record", "--dir", directory)
        read = tidelog_of_it("consume", "first", "--exit", "--dir", directory)
        assert read == "record\n"
        logs = (tmp_path / "cluster" / "broker-1" / "log").iterdir()
        said = "".join(path.read_text(encoding="utf-8") for path in logs)
        assert said.count("no compiled records/_walk") == 1
    finally:
        tidelog_of_it("down", "--dir", directory)


@pytest.mark.soak
@pytest.mark.parametrize("which", ["oldest", "newest"])
def test_every_python_builds_the_same_wheel(
    which: str, wheel: Path, unpacked: Path, tmp_path: Path
) -> None:
    python = others()[which]
    if isinstance(python, str):
        pytest.skip(python)
    there = build(unpacked, "wheel", tmp_path / "there", str(environment_of(python)))
    assert there.name == wheel.name and names(there) == names(wheel)
