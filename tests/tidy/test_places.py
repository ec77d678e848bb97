"""No file tells where it was made: no path of a machine, no address of a package registry."""

from __future__ import annotations

import re

from tests.tidy.sources import ROOT, project_files

#: Written in pieces, so that this file does not find itself.
_HOMES = re.compile("/" + r"(?:home|Users|root|work|workspace)/[A-Za-z0-9_.-]+/")
_REGISTRIES = re.compile(
    "|".join(
        re.escape(name)
        for name in (
            "pypi" + ".org",
            "python" + "hosted.org",
            "registry." + "npmjs",
            "crates" + ".io",
            "proxy.golang" + ".org",
            "repo1.maven" + ".org",
            "deb.debian" + ".org",
        )
    )
)


def texts() -> list[tuple[str, str]]:
    found = []
    for path in project_files():
        try:
            found.append((path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue  # pictures and recorded bytes
    assert len(found) > 50, "this test looks at nothing"
    return found


def matches(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_holds_a_path_of_somebodys_machine() -> None:
    assert matches(_HOMES) == []


def test_no_file_names_a_package_registry() -> None:
    assert matches(_REGISTRIES) == []


def test_lock_files_hold_hashes_and_no_addresses() -> None:
    for name in ("requirements.lock", "requirements-test.lock"):
        text = (ROOT / name).read_text()
        requirements = [line for line in text.splitlines() if re.match(r"[a-z0-9]", line)]
        assert len(requirements) > 20
        assert all(re.fullmatch(r"[a-z0-9.-]+==[^ ]+ \\", line) for line in requirements), name
        assert "://" not in text
        assert text.count("--hash=sha256:") >= len(requirements)


def test_both_lock_files_pin_the_same_versions() -> None:
    pins = [
        dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements.lock", "requirements-test.lock")
    ]
    assert {name: pins[1].get(name) for name in pins[0]} == pins[0]
