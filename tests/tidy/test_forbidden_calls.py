"""Code from `broker` down reaches the outside through ports only and runs the same each time."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tidy.forbidden_calls import findings

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "tidelog"
PURE = ("controller", "replication", "group")
SIMULATED = (
    "broker", "controller", "replication", "group", "txn", "security", "log", "metadata", "wire",
    "records", "core", "client", "history",
)  # fmt: skip
MODULES = [path for package in SIMULATED for path in sorted((PACKAGE / package).rglob("*.py"))]

CAUGHT = {
    "asyncio.wait": "import asyncio\nasync def f(x):\n    await asyncio.wait(x)",
    "aliased module": "import asyncio as a\nasync def f(x):\n    await a.wait(x)",
    "from import": "from asyncio import gather\n",
    "aliased function": "from asyncio import as_completed as done\n",
    "TaskGroup": "import asyncio\nasync def f():\n    async with asyncio.TaskGroup():\n     pass",
    "to_thread": "import asyncio\nx = asyncio.to_thread",
    "executor": "def f(loop):\n    loop.run_in_executor(None, f)",
    "asyncio.sleep": "import asyncio\nasync def f():\n    await asyncio.sleep(1)",
    "create_task": "import asyncio\nasyncio.create_task(f())",
    "async generator": "async def f():\n    yield 1",
    "async generator expression": "async def f(x):\n    return (await y for y in x)",
    "async comprehension": "async def f(x):\n    return [y async for y in x]",
    "__del__": "class A:\n    def __del__(self):\n        pass",
    "weakref callback": "import weakref\nr = weakref.ref(x, f)",
    "weakref from": "from weakref import finalize",
    "id": "key = id(x)",
    "hash": "key = hash('x')",
    "set literal": "for x in {1, 2}:\n    pass",
    "set comprehension": "y = [x for x in {z for z in w}]",
    "set call": "for x in set(y):\n    pass",
    "frozenset call": "y = {x: 1 for x in frozenset(z)}",
    "annotated name": "def f():\n    y: set[int] = g()\n    for x in y:\n        pass",
    "annotated argument": "def f(y: frozenset[int] | None):\n    return [x for x in y]",
    "annotated attribute": "class A:\n    def f(self):\n        self.y: set[int] = g()\n"
    "    def h(self):\n        for x in self.y:\n            pass",
    "assigned set": "y = set()\nfor x in y:\n    pass",
    "set from function": "def f() -> set[int]:\n    ...\nfor x in f():\n    pass",
    "set difference": "y: set[int] = g()\nfor x in y - z:\n    pass",
    "set union method": "for x in y.union(z):\n    pass",
    "list of a set": "y = {1, 2}\nz = list(y)",
    "star of a set": "y = {1, 2}\nz = [*y]",
    "join of a set": "y = {'1', '2'}\nz = ','.join(y)",
    "pop of a set": "y = {1, 2}\nz = y.pop()",
    "set in either branch": "for x in (y if z else set()):\n    pass",
    "open": "with open('x') as f:\n    pass",
    "os": "import os\nos.remove('x')",
    "os.path": "import os.path\nos.path.exists('x')",
    "os from": "from os import remove",
    "pathlib": "from pathlib import Path\nPath('x').read_text()",
    "shutil": "import shutil",
    "tempfile": "import tempfile",
    "uuid4": "from uuid import uuid4",
    "uuid": "import uuid\nuuid.uuid4()",
    "datetime.now": "from datetime import datetime\ndatetime.now()",
    "datetime module": "import datetime\ndatetime.datetime.now()",
    "time": "import time\ntime.monotonic()",
    "time from": "from time import time_ns",
    "random": "import random\nrandom.random()",
    "secrets": "import secrets",
    "logging": "import logging\nlogging.getLogger('x')",
    "logging from": "from logging import getLogger",
    "threading": "import threading",
    "socket": "import socket",
    "print": "print('x')",
}
PASSES = {
    "coroutines and tasks": "import asyncio\nasync def f(l):\n    t = asyncio.Task(g(), loop=l)\n"
    "    try:\n        await t\n    except asyncio.CancelledError:\n        raise",
    "logging levels": "import logging\nx = logging.WARNING",
    "time as a name of ours": "def f(time):\n    return time.monotonic_ms()",
    "membership in a set": "y = {1, 2}\nprint_it = 1 in y",
    "sorted set": "y = {1, 2}\nfor x in sorted(y):\n    pass",
    "size and comparison of sets": "y = {1, 2}\nz = len(y) == 2 and y == {2, 1}",
    "min of a set": "y = {1, 2}\nz = min(y)",
    "dict iteration": "y = {1: 2}\nfor x in y:\n    pass",
    "dict pop": "y: dict[int, int] = {}\ny.pop(1)",
    "a method named open": "async def f(store):\n    await store.open()",
    "imports for types": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import random\n",
    "a date of a given time": "import datetime\nx = datetime.datetime.fromtimestamp(0)",
    "generator in a coroutine": "async def f():\n    def g():\n        yield 1\n    return g",
}
CAUGHT_IN_DECISIONS = {
    "coroutine": "async def f():\n    pass",
    "ports": "from tidelog.core.ports import Clock",
    "ports module": "from tidelog.core import ports",
    "asyncio": "import asyncio",
    "logging": "import logging",
    "tasks": "from tidelog.core.tasks import Tasks",
}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_under_the_simulator_use_nothing_forbidden(path: Path) -> None:
    pure = path.relative_to(PACKAGE).parts[0] in PURE
    found = findings(path.read_text(encoding="utf-8"), pure=pure)
    assert [f"{path.name}:{line}: {what}" for line, what in found] == []


def test_every_package_is_looked_at() -> None:
    packages = {path.relative_to(PACKAGE).parts[0] for path in MODULES}
    assert {"broker", "core", "wire"} <= packages


@pytest.mark.parametrize("name", CAUGHT)
def test_a_forbidden_construct_is_caught(name: str) -> None:
    assert findings(CAUGHT[name])


@pytest.mark.parametrize("name", PASSES)
def test_what_is_harmless_passes(name: str) -> None:
    assert findings(PASSES[name]) == []


@pytest.mark.parametrize("name", CAUGHT_IN_DECISIONS)
def test_decision_packages_see_no_outside(name: str) -> None:
    source = CAUGHT_IN_DECISIONS[name]
    assert findings(source, pure=True)
    assert not findings(source)
