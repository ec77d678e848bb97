"""Which watches a list of changes fires, and in which order."""

from __future__ import annotations

from tidelog.metadata.store import EventKind, WatchEvent
from tidelog.metadata.watches import Watches

CREATED, CHANGED = EventKind.CREATED, EventKind.CHANGED
DELETED, CHILDREN = EventKind.DELETED, EventKind.CHILDREN


def watches_on(*paths: str) -> Watches[str]:
    """Callbacks are named "d<path>" for data watches and "c<path>" for child watches."""
    watches: Watches[str] = Watches()
    for path in paths:
        watches.watch_data(path, f"d{path}")
        watches.watch_children(path, f"c{path}")
    return watches


def test_a_node_made_is_told_to_its_watchers_and_its_parents() -> None:
    watches = watches_on("/", "/a", "/a/b")
    assert watches.fire(["+/a/b"]) == [
        ("d/a/b", WatchEvent(CREATED, "/a/b")),
        ("c/a", WatchEvent(CHILDREN, "/a")),
    ]
    assert watches.fire(["+/a/b"]) == []
    assert (watches.is_watched("/a/b"), watches.is_watched("/a")) == (True, True)


def test_changed_data_is_no_matter_of_the_children() -> None:
    watches = watches_on("/", "/a")
    assert watches.fire(["=/a"]) == [("d/a", WatchEvent(CHANGED, "/a"))]


def test_a_node_removed_is_told_to_both_kinds_and_to_its_parents() -> None:
    watches = watches_on("/", "/a")
    assert watches.fire(["-/a"]) == [
        ("d/a", WatchEvent(DELETED, "/a")),
        ("c/a", WatchEvent(DELETED, "/a")),
        ("c/", WatchEvent(CHILDREN, "/")),
    ]
    assert not watches.is_watched("/a")


def test_children_that_differ_unseen_are_told_to_child_watches_alone() -> None:
    watches = watches_on("/a")
    assert watches.fire(["*/a"]) == [("c/a", WatchEvent(CHILDREN, "/a"))]


def test_callbacks_fire_in_the_order_they_were_left_and_once_each() -> None:
    watches: Watches[str] = Watches()
    for name in ("z", "a", "m", "a"):
        watches.watch_data("/n", name)
    watches.watch_children("/n", "a")
    assert [name for name, _ in watches.fire(["-/n"])] == ["z", "a", "m"]


def test_changes_fire_in_their_order_and_only_the_first_one() -> None:
    watches = watches_on("/a", "/b")
    fired = watches.fire(["=/b", "=/a", "-/a", "=/b"])
    assert [(name, event.kind) for name, event in fired] == [
        ("d/b", CHANGED),
        ("d/a", CHANGED),
        ("c/a", DELETED),
    ]


def test_cleared_watches_do_not_fire() -> None:
    watches = watches_on("/a")
    assert len(watches) == 2
    assert (watches.data_paths(), watches.children_paths()) == (["/a"], ["/a"])
    watches.clear()
    assert (len(watches), watches.fire(["-/a"])) == (0, [])
