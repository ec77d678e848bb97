"""The runner of the tests tells the truth: limits, failures, skips, what is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests import run
from tests.run import Outcome, Part, Runner

#: Parts that end only if all run at the same time: each waits for the others' files.
MEET = """
import pathlib, sys
mine, *others = map(pathlib.Path, sys.argv[1:])
mine.touch()
while not all(other.exists() for other in others):
    pass
print("met", *(other.name for other in others))
"""


def python(
    name: str,
    text: str,
    *words: str,
    limit_s: int = 60,
    has_processes: bool = False,
    yields: bool = False,
) -> Part:
    words = (sys.executable, "-c", text, *words)
    return Part(name, (words,), False, limit_s, has_processes, yields=yields)


def test_parts_that_only_compute_run_side_by_side_and_show_what_they_print(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    parts = [python("one", MEET, a, b), python("two", MEET, b, a)]
    outcomes = Runner(tmp_path).run(parts, jobs=2)
    assert [(one.part, one.passed, one.failed) for one in outcomes] == [
        ("one", 1, 0),
        ("two", 1, 0),
    ]
    told = capfd.readouterr().out
    assert "=== one" in told and "met b" in told
    assert "=== two" in told and "met a" in told


def test_parts_with_processes_are_two_more_than_the_cores(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in "abcd"]
    parts = [
        python(str(number), MEET, *files[number:], *files[:number], has_processes=True)
        for number in range(4)
    ]
    outcomes = Runner(tmp_path).run(parts, jobs=2)
    assert [(one.passed, one.failed) for one in outcomes] == [(1, 0)] * 4


def test_the_longest_parts_begin_first() -> None:
    parts = {part.name: part for part in run.all_parts()}
    assert all(parts[name].has_processes for name in run.LONGEST)
    first = sorted(parts.values(), key=run.when)[: len(run.LONGEST)]
    assert tuple(part.name for part in first) == run.LONGEST


def test_what_has_processes_runs_when_what_computes_has_ended(tmp_path: Path) -> None:
    made = str(tmp_path / "made")
    text = "import os, sys; sys.exit(not os.path.exists(sys.argv[1]))"
    parts = [
        python("real", text, made, has_processes=True),
        python("computing", "import sys; open(sys.argv[1], 'w').close()", made),
    ]
    outcomes = Runner(tmp_path).run(parts, jobs=2)
    assert [(one.part, one.failed) for one in outcomes] == [("real", 0), ("computing", 0)]


def test_parts_that_yield_run_beside_all_others(tmp_path: Path) -> None:
    a, b, c = (str(tmp_path / name) for name in "abc")
    parts = [
        python("yields", MEET, a, b, c, yields=True),
        python("real", MEET, b, a, has_processes=True),
        python("computing", MEET, c, a),
    ]
    outcomes = Runner(tmp_path).run(parts, jobs=2)
    assert [(one.part, one.failed) for one in outcomes] == [
        ("yields", 0),
        ("real", 0),
        ("computing", 0),
    ]


@pytest.mark.parametrize("yields", [False, True])
def test_only_parts_that_yield_have_the_lowest_priority(tmp_path: Path, yields: bool) -> None:
    text = "import os, sys\nwhile os.getpriority(os.PRIO_PROCESS, 0) != int(sys.argv[1]): pass"
    niceness = run.LOWEST if yields else os.getpriority(os.PRIO_PROCESS, 0)
    parts = [python("part", text, str(niceness), yields=yields), python("any", "")]
    assert [one.failed for one in Runner(tmp_path).run(parts, jobs=2)] == [0, 0]


def test_cpu_time_is_read_from_the_results(tmp_path: Path) -> None:
    results = tmp_path / "results.xml"
    test = "tests/tidy/test_runner.py::test_clusters_are_tested_on_both_stores"
    words = (sys.executable, "-m", "pytest", "-q", test, f"--junitxml={results}")
    assert (
        subprocess.run(words, cwd=run.ROOT, stdout=subprocess.DEVNULL, check=False).returncode == 0
    )
    outcome = Outcome("one", 0.0)
    run.count(results, outcome)
    assert outcome.passed == 1 and outcome.cpu_s > 0


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_part_that_fails_or_does_not_end_is_a_failure_with_its_reason(
    tmp_path: Path, jobs: int
) -> None:
    parts = [
        python("bad", "raise SystemExit(3)"),
        python("endless", "while True: pass", limit_s=1),
        python("good", "pass"),
    ]
    bad, endless, good = Runner(tmp_path).run(parts, jobs)
    assert (bad.failed, endless.failed, good.failed) == (1, 1, 0)
    assert bad.notes[0].endswith(": 3")
    assert endless.notes[0].endswith("no end within its time limit")


def test_tests_that_do_not_end_tell_where_they_are(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tests, begun = tmp_path / "test_endless.py", tmp_path / "begun"
    tests.write_text(
        "import pathlib\n"
        "def test_computes_for_ever():\n"
        f"    pathlib.Path({str(begun)!r}).touch()\n"
        "    while True: pass\n"
    )
    wait = subprocess.Popen.wait

    def limit_when_it_has_begun(process: subprocess.Popen[bytes], timeout: float = 60) -> int:
        if begun.exists():
            return wait(process, timeout)
        while not begun.exists():
            assert process.poll() is None
        raise subprocess.TimeoutExpired(process.args, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", limit_when_it_has_begun)
    words = (sys.executable, "-m", "pytest", "-q", "-c", os.devnull, str(tests))
    [outcome] = Runner(tmp_path).run([Part("some", (words,), pytest=True)], jobs=1)
    assert outcome.failed == 1 and outcome.notes[0].endswith("no end within its time limit")
    assert "in test_computes_for_ever" in capfd.readouterr().err


def test_no_thread_looks_at_frames_of_tests_that_compute() -> None:
    words = [word for part in run.all_parts() for words in part.commands for word in words]
    assert not any("faulthandler_timeout" in word for word in (*words, *run.PYTEST_OPTIONS))


def test_a_part_has_variables_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "kept")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    text = "import os, sys; sys.exit([os.environ['KEPT'], os.environ['MADE']] != ['kept', 'made'])"
    text += "; sys.exit('PYTHONDONTWRITEBYTECODE' in os.environ)"
    words = (sys.executable, "-c", text)
    [outcome] = Runner(tmp_path).run([Part("one", (words,), variables=(("MADE", "made"),))], jobs=1)
    assert (outcome.passed, outcome.failed) == (1, 0)


def test_clusters_are_tested_on_both_stores() -> None:
    parts = {part.name: part for part in run.all_parts()}
    assert "tests/cluster" in parts["cluster"].commands[0]
    assert "tests/cluster" in parts["zookeeper"].commands[0]
    assert parts["zookeeper"].variables == (("TIDELOG_TEST_STORE", "zookeeper"),)


def test_what_is_left_out_on_one_store_is_left_to_the_soak() -> None:
    of_test = {part.name: part for part in run.all_parts()}
    of_soak = {part.name: part for part in run.soak_parts()}
    assert of_test.keys().isdisjoint(of_soak)
    left_out = [
        word.removeprefix("--ignore=")
        for word in of_test["zookeeper"].commands[0]
        if word.startswith("--ignore=")
    ]
    assert [path for path in left_out if not (run.ROOT / path).is_file()] == []
    soaked = of_soak["any_store"]
    assert soaked.variables == of_test["zookeeper"].variables
    assert [
        path for path in left_out if path not in run.OWN_STORE and path not in soaked.commands[0]
    ] == []
    assert "--soak" in of_soak["marked"].commands[0]


def test_tests_are_counted_with_the_reasons_of_skips(tmp_path: Path) -> None:
    tests = tmp_path / "test_some.py"
    tests.write_text(
        "import pytest\n"
        "def test_good(): assert True\n"
        "def test_bad(): assert False\n"
        "def test_skipped(): pytest.skip('no such disk')\n"
        "@pytest.mark.xfail(reason='not yet')\n"
        "def test_later(): assert False\n"
    )
    words = (sys.executable, "-m", "pytest", "-q", "-c", os.devnull, str(tests))
    [outcome] = Runner(tmp_path).run([Part("some", (words,), pytest=True)], jobs=1)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (2, 1, 1)
    assert outcome.skips == Counter({"no such disk": 1})
    assert outcome.expected_failures == ["test_later: not yet"]


def test_the_closing_line_names_the_reasons_of_skips(capsys: pytest.CaptureFixture[str]) -> None:
    skips = [Counter({"no kcat": 2}), Counter({"no kcat": 1, "no root": 1})]
    outcomes = [Outcome("p", 1.0, 5, 0, each.total(), each) for each in skips]
    assert run.report(outcomes, 2.0)
    closing = capsys.readouterr().out.splitlines()[-1]
    assert closing == "10 passed, 0 failed, 4 skipped (3 no kcat; 1 no root)"


def test_a_process_that_is_left_running_is_named_and_killed() -> None:
    mark = f"test-{os.getpid()}"
    left = subprocess.Popen(
        [sys.executable, "-c", "print('up', flush=True)\nwhile True: pass"],
        env={**os.environ, run.MARK: mark},
        stdout=subprocess.PIPE,
    )
    try:
        assert left.stdout is not None
        assert left.stdout.readline() == b"up\n"
        [named] = run.leftovers(mark, grace_s=0)
        assert str(left.pid) in named
        assert left.wait(60) == -signal.SIGKILL
    finally:
        left.kill()
        left.wait()
