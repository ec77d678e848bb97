"""Writes the tables of faults and churn in docs/internals/proof.md from what is registered."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidelog.sim.faults import KINDS, SCENARIOS
from tidelog.sim.workload.churn_kinds import CHURN

PAGE: Final = Path(__file__).parents[2] / "docs" / "internals" / "proof.md"
_BEGIN: Final = "<!-- faults -->\n"
_END: Final = "<!-- end of faults -->\n"


def render() -> str:
    """The tables."""
    faults = [f"| {kind.family} | `{kind.name}` | {kind.description} |" for kind in KINDS.values()]
    scenarios = [
        f"| scenarios | `{name}` | {_first_sentence(play.__doc__)} |"
        for name, play in SCENARIOS.items()
    ]
    churn = [f"| `{name}` | {_first_sentence(kind.__doc__)} |" for name, kind in CHURN.items()]
    lines = ["| family | fault | what it does |", "|---|---|---|", *sorted(faults), *scenarios, ""]
    lines += ["| churn | what goes on |", "|---|---|", *churn, ""]
    return "\n".join(lines)


def _first_sentence(text: str | None) -> str:
    assert text, "everything registered says what it does"
    return " ".join(text.split())


def written() -> str:
    """What the page has between its marks."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    return rest.partition(_END)[0]


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(_BEGIN)
    after = rest.partition(_END)[2]
    PAGE.write_text(before + _BEGIN + render() + _END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
