"""Selection of the facts that matter, formatted as lines with the simulated time.

The story of a violation has the facts about the partitions or the group that the violation names,
and the facts about the whole cluster. The story of a run without a violation has the facts about
all partitions, except facts about records. A long series of facts about records is summarized,
except the last of them before the violation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.sim.story import facts
from tidelog.sim.story.facts import Fact
from tidelog.sim.story.verdict import ending
from tidelog.sim.story.watching import Watcher

_ROUTINE: Final = (facts.APPENDED, facts.COPIED, facts.COMMITTED, facts.ACKNOWLEDGED, facts.OFFSETS)
_VERBS: Final = {
    facts.APPENDED: "appends",
    facts.COPIED: "copies",
    facts.COMMITTED: "commits",
    facts.ACKNOWLEDGED: "gets the acknowledgement of records at",
    facts.OFFSETS: "gets the acknowledgement of offsets",
}
#: Number of the last facts about records that a story does not summarize.
_LAST_ROUTINE: Final = 24
_GROUP: Final = re.compile(r"\b(?:group|by group) (\w+)")
_NS_PER_S: Final = 1_000_000_000


def story_lines(watcher: Watcher, violation: str) -> list[str]:
    """Return the story of a run that has ended; `violation` is empty if there was none."""
    subjects = _subjects(watcher, violation)
    chosen = [each for each in _with_faults(watcher) if _matters(each, subjects)]
    if not violation:
        lines = [_line(each) for each in chosen if each.kind not in _ROUTINE]
        return [*lines, "nothing was violated"]
    head = f"What led to it, for {', '.join(subjects) or 'all partitions'}:"
    return [head, *map(_line, _summed_up(chosen)), *ending(watcher, violation, subjects)]


def _subjects(watcher: Watcher, violation: str) -> list[str]:
    """Return the partitions and groups that a violation names; empty if it names none."""
    named = violation.partition("\n")[0]
    topics = sorted(
        dict.fromkeys(topic.name for topic in watcher.run.cluster.published.all_topics.values())
    )
    if not topics:
        return []
    names = "|".join(map(re.escape, topics))
    found = dict.fromkeys(re.findall(rf"(?<![\w-])(?:{names})-\d+", named))
    group = _GROUP.search(named)
    if group is not None:
        partition = watcher.run.cluster.groups.partition_of(group[1])
        found |= {group[1]: None, f"{CONSUMER_OFFSETS}-{partition}": None}
    return list(found)


def _matters(fact: Fact, subjects: list[str]) -> bool:
    about = fact.about
    return (
        not about
        or not subjects
        or about in subjects
        or any(subject.rpartition("-")[0] == about for subject in subjects)
    )


def _with_faults(watcher: Watcher) -> list[Fact]:
    """Return all facts in order of time, together with the drawn faults."""
    drawn = [
        Fact(
            played.time_ns,
            facts.FAULT,
            "",
            f"fault {played.drawn_before + 1} is drawn: {played.kind}",
        )
        for played in watcher.run.faults.played
    ]
    return sorted([*drawn, *watcher.facts], key=lambda each: each.time_ns)


def _summed_up(chosen: list[Fact]) -> Iterator[Fact]:
    """Summarize long series of facts about records, except the last of these facts.

    All facts of a series with the same subject, kind and actor become one fact.
    """
    routine = [index for index, each in enumerate(chosen) if each.kind in _ROUTINE]
    from_here_on = routine[-_LAST_ROUTINE] if len(routine) > _LAST_ROUTINE else 0
    stretch: list[Fact] = []
    for index, each in enumerate(chosen):
        if each.kind in _ROUTINE and index < from_here_on:
            stretch.append(each)
            continue
        yield from _sums(stretch)
        stretch = []
        yield each
    yield from _sums(stretch)


def _sums(stretch: Iterable[Fact]) -> Iterator[Fact]:
    groups: dict[tuple[str, str, str], list[Fact]] = {}
    for each in stretch:
        groups.setdefault((each.about, each.kind, each.who), []).append(each)
    in_order = sorted(groups.items(), key=lambda item: item[1][-1].time_ns)
    for (about, kind, who), together in in_order:
        if len(together) == 1:
            yield together[0]
            continue
        offsets = [each.offsets for each in together if each.offsets is not None]
        span = _spans(offsets) if offsets else "offsets without a response"
        text = f"{who} {_VERBS[kind]} {span}, in {len(together)} steps"
        yield Fact(together[-1].time_ns, kind, about, text)


def _spans(offsets: list[tuple[int, int]]) -> str:
    """Return offsets as text, with adjacent spans joined: 0-4 and 5-9 as 0-9."""
    spans: list[list[int]] = []
    for first, last in sorted(offsets):
        if spans and first <= spans[-1][1] + 1:
            spans[-1][1] = max(spans[-1][1], last)
        else:
            spans.append([first, last])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans)


def _line(fact: Fact) -> str:
    about = f"{fact.about}: " if fact.about else ""
    return f"{fact.time_ns / _NS_PER_S:10.6f} s  {about}{fact.text}"
