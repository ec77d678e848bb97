"""How a soak shares its time, what it starts and ends, and the tables that it writes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.sim import coverage as page
from tests.sim import soak
from tests.sim.coverage_summary import summarize
from tests.sim.soak import Step

from tidelog.core.sometimes import SOMETIMES
from tidelog.sim.faults import KINDS
from tidelog.sim.results import COUNTERS, RunResult
from tidelog.sim.search_coverage import Coverage


class TestTime:
    def minutes_of(self, minutes: float, others_s: float) -> float:
        """What the simulator is given where each set of other steps takes so long."""
        now_s = [0.0]
        told: list[Step] = []

        def call(steps: Sequence[Step]) -> list[str]:
            now_s[0] += others_s
            told.extend(steps)
            return [f"{step.name} failed" for step in steps if step.name == "models"]

        problems = soak.soak(minutes, Path("/kept"), call, 4, lambda: now_s[0])
        assert problems == ["models failed"]
        names = [step.name for step in told]
        assert names[:4] == ["mutants", "models", "clients", "histories"]
        assert names[4:6] == ["chaos on embedded", "chaos on zookeeper"]
        assert names[6] == "tests"
        assert names[7:] == ["known_seeds.txt", "rare_seeds.txt", "simulation", "coverage"]
        words = next(step.words for step in told if step.name == "simulation")
        assert words[words.index("--coverage") + 1] == "/kept" == told[-1].words[-1]
        return float(words[words.index("--minutes") + 1])

    def test_the_simulator_has_what_is_left_and_a_third_at_least(self) -> None:
        assert self.minutes_of(30, 60.0) == 24
        assert self.minutes_of(30, 1_200.0) == 10

    @pytest.mark.parametrize(("minutes", "share"), [(6, 1), (60, 10), (600, 10)])
    def test_chaos_has_ten_minutes_on_each_store_of_an_hour_or_more(
        self, minutes: float, share: float
    ) -> None:
        (steps,) = [each for each in soak.before(minutes, 4) if "chaos" in each[0].name]
        words = [step.words for step in steps]
        assert [each[each.index("--store") + 1] for each in words] == ["embedded", "zookeeper"]
        assert [float(each[each.index("--minutes") + 1]) for each in words] == [share] * 2

    def test_what_goes_before_has_two_thirds_at_most(self) -> None:
        limits = {step.name: step for steps in soak.before(30, 4) for step in steps}
        mutants = limits["mutants"].words
        assert float(mutants[mutants.index("--minutes") + 1]) == 10
        assert mutants[mutants.index("--jobs") + 1] == "3"
        assert limits["models"].limit_s == 600 and limits["clients"].limit_s == 300
        assert dict(limits["histories"].environment)["TIDELOG_TEST_HISTORY_S"] == "300"


class TestSteps:
    def python(self, name: str, code: str, limit_s: float | None = None) -> Step:
        return Step(name, (sys.executable, "-c", code), limit_s, (("SOAK", name),))

    def test_all_of_them_run_and_those_that_fail_are_told(
        self, capfd: pytest.CaptureFixture[str]
    ) -> None:
        code = "import os, sys; print('I am', os.environ['SOAK']); sys.exit({})"
        steps = [self.python("one", code.format(0)), self.python("two", code.format(3))]
        assert soak.run_side_by_side(steps) == ["two ended with 3"]
        told = capfd.readouterr().out
        assert "I am one" in told and "I am two" in told

    def test_one_whose_time_is_over_is_ended_and_may_say_its_last_words(
        self, capfd: pytest.CaptureFixture[str]
    ) -> None:
        code = (
            "import signal, sys, threading\n"
            "signal.signal(signal.SIGTERM, lambda *_: (print('last words'), sys.exit(143)))\n"
            "print('here', flush=True); threading.Event().wait()"
        )
        assert soak.run_side_by_side([self.python("endless", code, limit_s=2.0)]) == []
        told = capfd.readouterr().out
        assert "endless was ended: its share of the time is over" in told
        assert "here" not in told or "last words" in told


def covered() -> Coverage:
    found = Coverage()
    found.add(
        RunResult(
            seed=1,
            profile="late_isr",
            trace_hash="",
            events=1_234,
            simulated_ns=3_600_000_000_000,
            counters=dict.fromkeys(COUNTERS, 7),
            faults={"pause": 2},
            churn={"partitions added": 1},
            marks={"truncated": 5},
        )
    )
    return found


class TestPage:
    def test_every_fault_profile_and_state_has_its_line(self) -> None:
        text = page.render(summarize(covered(), "some.json"))
        command = "python -m tests.sim.coverage --from some.json --write"
        assert f"This page sums up 1 runs: `{command}` writes it" in text
        assert "| late_isr | 1 | 1.0 | 1,234 | 7 | 7 | 7 | 7 | 7 | 7 | 1 | 0 |" in text
        assert "| fault | partitions added |" in text and "| pause | 1 / 1 |" in text
        assert all(f"\n| {kind} |" in text for kind in KINDS)
        assert f"| `truncated`: {SOMETIMES['truncated']} | 5 | pause |" in text
        assert all(f"`{name}`:" in text for name in SOMETIMES)
        assert "Never reached: `high_watermark_stale_at_election`" in text

    def test_a_state_that_was_never_reached_fails(
        self,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        kept = tmp_path / "kept.json"
        some = covered()
        kept.write_text(some.to_json())
        monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
        monkeypatch.setattr(page, "KEPT", tmp_path / "summary.json")
        monkeypatch.setattr(sys, "argv", ["coverage", "--from", str(kept), "--write"])
        assert page.main() == 1
        assert "NEVER REACHED duplicate_batch" in capsys.readouterr().err
        assert (tmp_path / "page.md").read_text().startswith("# Coverage of the simulator")
        some.profiles["late_isr"].marks = dict.fromkeys(SOMETIMES, 1)
        kept.write_text(some.to_json())
        assert page.main() == 0

    def test_the_page_is_written_again_from_what_a_search_has_left(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        kept = tmp_path / "kept.json"
        kept.write_text(covered().to_json())
        monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
        monkeypatch.setattr(page, "KEPT", tmp_path / "summary.json")
        monkeypatch.setattr(sys, "argv", ["coverage", "--from", str(kept), "--write"])
        page.main()
        written = (tmp_path / "page.md").read_text()
        (tmp_path / "page.md").write_text("nothing")
        monkeypatch.setattr(sys, "argv", ["coverage", "--write"])
        assert page.main() == 0
        assert (tmp_path / "page.md").read_text() == written

    def test_what_is_no_coverage_is_told(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        for name, text, told in (("none", None, "No such file"), ("bad", "{", "is no JSON")):
            path = tmp_path / name
            if text is not None:
                path.write_text(text)
            monkeypatch.setattr(sys, "argv", ["coverage", "--from", str(path)])
            with pytest.raises(SystemExit, match=told):
                page.main()
