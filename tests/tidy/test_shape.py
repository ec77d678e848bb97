"""Size, names and docstrings of modules and functions (DESIGN.md, Style)."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.tidy.sources import Source, functions, python_sources

MODULE_LINES = 700
_OF_SCHEMAS = "a structure of several of Kafka's messages, whose schemas name it so"
#: Names of several classes, and why.
REPEATED = {
    **dict.fromkeys(
        (
            "AlterConfigsResource",
            "AlterConfigsResourceResponse",
            "AlterableConfig",
            "Assignment",
            "DescribedGroup",
            "EntityData",
            "EntryData",
            "EpochEndOffset",
            "LeaderIdAndEpoch",
            "NodeEndpoint",
            "TopicPartitions",
            "TopicRequest",
            "TransactionState",
        ),
        _OF_SCHEMAS,
    ),
    **dict.fromkeys(
        ("ConfigsChanged", "PartitionsAdded", "PartitionsRemoved", "RecordsDeleted"),
        "a kind of churn, whose name profiles use, and what the controller or a command did",
    ),
    "Member": "of a group, and as ConsumerGroupDescribe's schema names it",
    "ProducerState": "of a log, and as DescribeProducers' schema names it",
    "TopicPartition": "of a cluster, and as the schema of consumers' subscriptions names it",
}
FUNCTION_LINES = 70
DOCSTRING_LINES = range(3, 16)
BANNED_WORDS = ("util", "utils", "helper", "helpers", "common", "manager", "misc")
#: A banned word is right where Kafka's own name has it: its readers look for that name.
KAFKAS_NAMES = ("alter_partition_manager", "AlterPartitionManager")


def test_no_module_is_longer_than_its_limit() -> None:
    assert [
        f"{source.path}: {source.lines} lines"
        for source in python_sources()
        if source.lines > MODULE_LINES
    ] == []


def test_no_function_is_longer_than_its_limit() -> None:
    too_long = []
    for source in python_sources():
        for function in functions(source):
            length = (function.end_lineno or 0) - function.lineno + 1
            if length > FUNCTION_LINES:
                too_long.append(f"{source.path}:{function.lineno} {function.name}: {length} lines")
    assert too_long == []


def test_every_module_of_the_package_says_what_it_is() -> None:
    without = []
    for source in python_sources(below="src/"):
        lines = (ast.get_docstring(source.tree, clean=False) or "").strip().splitlines()
        if is_package_face(source):
            wrong = not lines
        else:
            wrong = len(lines) not in DOCSTRING_LINES
        if wrong:
            without.append(f"{source.path}: a docstring of {len(lines)} lines")
    assert without == []


def is_package_face(source: Source) -> bool:
    """An `__init__.py` or `__main__.py` with little in it, for which one line is enough."""
    return source.path.endswith(("__init__.py", "__main__.py")) and source.lines < 50


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [
        source.path
        for source in python_sources()
        for word in source.path.removesuffix(".py").replace("/", "_").split("_")
        if word in BANNED_WORDS and Path(source.path).stem not in KAFKAS_NAMES
    ] == []


def test_no_class_or_function_has_a_name_that_says_nothing() -> None:
    found = []
    for source in python_sources(below="src/"):
        for node in source.nodes:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = node.name.lower()
                if node.name not in KAFKAS_NAMES and any(
                    name.endswith(word) for word in ("util", "utils", "helper", "manager")
                ):
                    found.append(f"{source.path}:{node.lineno} {node.name}")
    assert found == []


def test_public_classes_and_functions_of_modules_have_docstrings() -> None:
    """Of the package; overrides of methods speak through what they override."""
    without = [
        f"{source.path}:{node.lineno} {node.name}"
        for source in python_sources(below="src/")
        for node in source.tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and ast.get_docstring(node) is None
    ]
    assert without == []


def test_a_class_name_means_one_class() -> None:
    """Where a name appears in the code, a reader knows which class it is."""
    places: dict[str, list[str]] = {}
    for source in python_sources(below="src/tidelog/"):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(source.path)
    repeated = {name for name, found in places.items() if len(found) > 1}
    assert len(places) > 1_500, "this test looks at nothing"
    assert len(REPEATED) <= 20
    assert repeated == REPEATED.keys()
