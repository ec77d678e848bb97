"""Finds on the syntax tree what code under the simulator must not use (DESIGN.md, rule 5).

Imports are resolved to full names first, so that an alias or `from ... import` hides nothing.
Iteration over sets is found where the set is visible: a literal, a comprehension, a call of `set`
or `frozenset`, a set operation on such, or a name or attribute annotated (or assigned) as a set in
the same module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple


class Finding(NamedTuple):
    line: int
    what: str


#: Full names (or packages, with a trailing dot) that must not be used, and why or what instead.
FORBIDDEN_NAMES = {
    "asyncio.wait": "orders by object address; use core.tasks",
    "asyncio.as_completed": "orders by object address; use core.tasks",
    "asyncio.TaskGroup": "orders by object address; use core.tasks",
    "asyncio.to_thread": "threads; use a lane",
    "asyncio.gather": "use Tasks.gather_ordered",
    "asyncio.shield": "its callbacks differ between Pythons; use core.tasks",
    "asyncio.timeout": "the loop's clock; use Tasks.timeout",
    "asyncio.wait_for": "the loop's clock; use Tasks.timeout",
    "asyncio.sleep": "the loop's clock; use Tasks.sleep",
    "asyncio.create_task": "nobody hears of its failure; use Tasks.spawn",
    "asyncio.ensure_future": "nobody hears of its failure; use Tasks.spawn",
    "uuid.": "randomness comes from the Random port",
    "datetime.datetime.now": "time comes from the Clock port",
    "datetime.datetime.utcnow": "time comes from the Clock port",
    "datetime.datetime.today": "time comes from the Clock port",
    "datetime.date.today": "time comes from the Clock port",
    "time.": "time comes from the Clock port",
    "random.": "randomness comes from the Random port",
    "secrets.": "randomness comes from the Random port",
    "threading.": "threads; use a lane",
    "concurrent.": "threads; use a lane",
    "multiprocessing.": "processes",
    "subprocess.": "processes",
    "socket.": "use the Network port",
    "select.": "use the Network port",
    "selectors.": "use the Network port",
    "ssl.": "use the Network port",
    "os.": "use the Files port through a lane",
    "pathlib.": "use the Files port through a lane",
    "shutil.": "use the Files port through a lane",
    "tempfile.": "use the Files port through a lane",
    "glob.": "use the Files port through a lane",
    "io.open": "use the Files port through a lane",
    "weakref.": "callbacks run when the collector pleases",
    "gc.": "belongs to the process, not to the broker",
}
#: Names of such packages that are harmless: levels and types without clock or files.
ALLOWED_NAMES = {
    "os.PathLike",
    "os.fspath",
}
#: Names of `logging` that are numbers; all else goes through Tracer.log.
LOGGING_LEVELS = {"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"}
FORBIDDEN_BUILTINS = {
    "open": "use the Files port through a lane",
    "id": "an object's address",
    "hash": "differs from process to process",
    "input": "waits for a person",
    "print": "use Tracer.log",
}
#: Attributes that are these things whatever they hang on.
FORBIDDEN_ATTRIBUTES = {"as_completed", "to_thread", "run_in_executor", "call_soon_threadsafe"}
SET_TYPES = {"set", "frozenset", "Set", "AbstractSet", "MutableSet", "FrozenSet"}
SET_METHODS = {"union", "intersection", "difference", "symmetric_difference"}
#: Decision packages see no outside at all.
IMPURE_IMPORTS = ("asyncio", "tidelog.core.ports", "tidelog.core.tasks", "logging")


def findings(source: str, *, pure: bool = False) -> list[Finding]:
    """All forbidden constructs of a module; `pure` adds the bans of decision packages."""
    tree = ast.parse(source)
    found = list(_Finder(tree).run())
    if pure:
        found += _impure(tree)
    return sorted(found)


def _impure(tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield Finding(node.lineno, "a coroutine in a decision package")
        for name in _imported(node):
            if name in IMPURE_IMPORTS or name.startswith(tuple(p + "." for p in IMPURE_IMPORTS)):
                yield Finding(node.lineno, f"import of {name} in a decision package")  # type: ignore[attr-defined]  # import statements have lines


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *[f"{node.module}.{alias.name}" for alias in node.names]]
    return []


class _Finder:
    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._aliases: dict[str, str] = {}
        self._set_names: dict[str, None] = {}
        self._only_types = _type_checking_nodes(tree)
        for node in ast.walk(tree):
            self._learn(node)

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._aliases[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                self._aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.AnnAssign) and _is_set_annotation(node.annotation):
            self._name_set(node.target)
        elif isinstance(node, ast.arg) and node.annotation is not None:
            if _is_set_annotation(node.annotation):
                self._set_names[node.arg] = None
        elif isinstance(node, ast.Assign) and self._is_plain_set(node.value):
            for target in node.targets:
                self._name_set(target)
        elif (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.returns is not None
            and _is_set_annotation(node.returns)
        ):
            self._set_names[node.name] = None

    def _name_set(self, target: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._set_names[target.id] = None
        elif isinstance(target, ast.Attribute):
            self._set_names[target.attr] = None

    def run(self) -> Iterator[Finding]:
        for node in ast.walk(self._tree):
            if node not in self._only_types:
                yield from self._look(node)

    def _look(self, node: ast.AST) -> Iterator[Finding]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from self._look_at_import(node)
        elif isinstance(node, ast.Attribute | ast.Name):
            yield from self._look_at_name(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name == "__del__":
                yield Finding(node.lineno, "__del__: runs when the collector pleases")
            if isinstance(node, ast.AsyncFunctionDef) and _yields(node):
                yield Finding(node.lineno, "an async generator: its end depends on the collector")
        elif isinstance(node, ast.For | ast.AsyncFor):
            yield from self._look_at_iteration(node.iter)
        elif isinstance(node, ast.comprehension):
            if node.is_async:
                yield Finding(node.iter.lineno, "an async comprehension")
            yield from self._look_at_iteration(node.iter)
        elif isinstance(node, ast.GeneratorExp) and _awaits(node):
            yield Finding(node.lineno, "an async generator: its end depends on the collector")
        elif isinstance(node, ast.Call):
            yield from self._look_at_call(node)
        elif isinstance(node, ast.Starred):
            yield from self._look_at_iteration(node.value)

    def _look_at_import(self, node: ast.Import | ast.ImportFrom) -> Iterator[Finding]:
        for name in _imported(node):
            if name in ALLOWED_NAMES or name == "datetime":
                continue
            reason = _forbidden(name)
            if reason and not self._imports_only_allowed(node):
                yield Finding(node.lineno, f"import of {name}: {reason}")
                return
            if name.startswith("logging.") and name.partition(".")[2] not in LOGGING_LEVELS:
                yield Finding(node.lineno, f"import of {name}: use Tracer.log")

    @staticmethod
    def _imports_only_allowed(node: ast.Import | ast.ImportFrom) -> bool:
        return isinstance(node, ast.ImportFrom) and all(
            f"{node.module}.{alias.name}" in ALLOWED_NAMES for alias in node.names
        )

    def _look_at_name(self, node: ast.Attribute | ast.Name) -> Iterator[Finding]:
        if isinstance(node, ast.Attribute) and node.attr in FORBIDDEN_ATTRIBUTES:
            yield Finding(node.lineno, node.attr)
            return
        name = self._full_name(node)
        if name is None:
            return
        if name.startswith("logging.") and name.partition(".")[2] not in LOGGING_LEVELS:
            yield Finding(node.lineno, f"{name}: use Tracer.log")
        elif name not in ALLOWED_NAMES and (reason := _forbidden(name)):
            yield Finding(node.lineno, f"{name}: {reason}")

    def _look_at_call(self, node: ast.Call) -> Iterator[Finding]:
        function = node.func
        if isinstance(function, ast.Name) and function.id not in self._aliases:
            if reason := FORBIDDEN_BUILTINS.get(function.id):
                yield Finding(node.lineno, f"{function.id}(): {reason}")
            if function.id in ("list", "tuple", "iter", "enumerate", "zip", "map", "next", "dict"):
                for argument in node.args:
                    yield from self._look_at_iteration(argument)
        elif isinstance(function, ast.Attribute):
            if function.attr in ("join", "extend", "fromkeys"):
                for argument in node.args:
                    yield from self._look_at_iteration(argument)
            if function.attr == "pop" and not node.args and self._is_set(function.value):
                yield Finding(node.lineno, "pop of a set: its order is that of hashes")

    def _look_at_iteration(self, iterated: ast.expr) -> Iterator[Finding]:
        if self._is_set(iterated):
            yield Finding(iterated.lineno, "iteration over a set: its order is that of hashes")

    def _full_name(self, node: ast.expr) -> str | None:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._aliases:
            return None
        return ".".join([self._aliases[node.id], *reversed(parts)])

    def _is_plain_set(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Set | ast.SetComp):
            return True
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("set", "frozenset")
        )

    def _is_set(self, node: ast.expr) -> bool:
        if self._is_plain_set(node):
            return True
        if isinstance(node, ast.Name):
            return node.id in self._set_names
        if isinstance(node, ast.Attribute):
            return node.attr in self._set_names
        if isinstance(node, ast.BinOp) and isinstance(
            node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor
        ):
            return self._is_set(node.left) or self._is_set(node.right)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in SET_METHODS:
                return True
            return isinstance(node.func, ast.Name | ast.Attribute) and self._is_set(node.func)
        if isinstance(node, ast.IfExp):
            return self._is_set(node.body) or self._is_set(node.orelse)
        return False


def _forbidden(name: str) -> str | None:
    for banned, reason in FORBIDDEN_NAMES.items():
        if banned.endswith("."):
            if name == banned[:-1] or name.startswith(banned):
                return reason
        elif name == banned or name.startswith(banned + "."):
            return reason
    return None


def _is_set_annotation(annotation: ast.expr) -> bool:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.BinOp):
        return _is_set_annotation(annotation.left) or _is_set_annotation(annotation.right)
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    if isinstance(annotation, ast.Attribute):
        return annotation.attr in SET_TYPES
    return isinstance(annotation, ast.Name) and annotation.id in SET_TYPES


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        yield child
        yield from _own_nodes(child)


def _yields(function: ast.AsyncFunctionDef) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _own_nodes(function))


def _awaits(node: ast.AST) -> bool:
    return any(isinstance(child, ast.Await) for child in _own_nodes(node))


def _type_checking_nodes(tree: ast.Module) -> dict[ast.AST, None]:
    """Nodes under `if TYPE_CHECKING:`, which never run."""
    skipped: dict[ast.AST, None] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.If) or not isinstance(node.test, ast.Name):
            continue
        if node.test.id == "TYPE_CHECKING":
            for statement in node.body:
                skipped.update(dict.fromkeys(ast.walk(statement)))
    return skipped
