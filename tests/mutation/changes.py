"""Small changes of functions, found in their syntax trees.

A change replaces one stretch of a file's text, so everything around it stays as it is written. The
kinds of changes (`KINDS`) are those of mistakes that people make: a comparison or a number off by
one, a condition that is missing or the wrong way round, a step that is left out, arguments in the
wrong order. Left alone are checks of the code itself (`assert`), texts, log lines, marks of the
simulator, defaults, decorators and types: a change there is seen by none, or by all.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

Function = ast.FunctionDef | ast.AsyncFunctionDef
Located = ast.expr | ast.stmt

OPERATOR, COMPARISON, CONSTANT = "operator", "comparison", "constant by one"
DROPPED_CONDITION, NEGATED, REMOVED_NOT = "condition dropped", "condition negated", "not removed"
DROPPED_EFFECT, SWAPPED = "effect dropped", "arguments swapped"
EARLY_RETURN, LOOP = "early return", "break and continue"
KINDS: Final = (
    OPERATOR, COMPARISON, CONSTANT, DROPPED_CONDITION, NEGATED, REMOVED_NOT, DROPPED_EFFECT,
    SWAPPED, EARLY_RETURN, LOOP,
)  # fmt: skip

_ARITHMETIC: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
_COMPARED: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
}
#: A comparison with one of these is the opposite of itself with its change.
_OPPOSITES: Final = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_OTHER_FUNCTION: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
#: Calls without an effect that a client or a broker could see.
_UNSEEN: Final = ("debug", "info", "warning", "error", "exception", "mark")
#: Calls whose arguments have an order that no one gets wrong, or none.
_ORDERED: Final = (
    "isinstance", "issubclass", "getattr", "setattr", "hasattr", "cast", "min", "max",
)  # fmt: skip
_TEXTS: Final = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)


@dataclass(frozen=True, slots=True)
class Change:
    """A replacement of the bytes from `start` to `end` of a file by `new`."""

    kind: str
    #: The qualified name of the function that it changes.
    function: str
    line: int
    start: int
    end: int
    new: str


def changes(text: str) -> list[Change]:
    """Return all changes of the functions of a file, in their order, none twice."""
    found = _Finder(text)
    found.visit(ast.parse(text))
    unique = {(each.start, each.end, each.new): each for each in found.changes}
    return sorted(unique.values(), key=lambda each: (each.start, each.end, each.kind, each.new))


@dataclass(frozen=True, slots=True)
class FunctionLines:
    """The lines of a function's body, those of functions within it included."""

    function: str
    first: int
    last: int


def functions_of(text: str) -> list[FunctionLines]:
    """Return the functions of a file, an outer one before those within it."""
    found: list[FunctionLines] = []

    def look(node: ast.AST, outer: tuple[str, ...]) -> None:
        names = outer
        if isinstance(node, Function | ast.ClassDef):
            names = (*outer, node.name)
        if isinstance(node, Function):
            lines = FunctionLines(".".join(names), node.body[0].lineno, node.end_lineno or 0)
            found.append(lines)
        for child in ast.iter_child_nodes(node):
            look(child, names)

    look(ast.parse(text), ())
    return found


class _Finder(ast.NodeVisitor):
    """Collects the changes of one file."""

    def __init__(self, text: str) -> None:
        self.changes: list[Change] = []
        self._data = text.encode()
        self._lines = [0]
        for line in self._data.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._names: list[str] = []
        self._functions: list[Function] = []

    # Places and texts

    def _start(self, node: Located) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _end(self, node: Located) -> int:
        return self._lines[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)

    def _text(self, node: Located) -> str:
        return self._data[self._start(node) : self._end(node)].decode()

    def _add(self, kind: str, start: int, end: int, new: str) -> None:
        if self._functions and self._data[start:end].decode() != new:
            line = self._data.count(b"\n", 0, start) + 1
            self.changes.append(Change(kind, ".".join(self._names), line, start, end, new))

    def _replace(self, kind: str, node: Located, new: str) -> None:
        self._add(kind, self._start(node), self._end(node), new)

    def _replace_between(
        self, kind: str, left: Located, right: Located, old: str, new: str
    ) -> None:
        """Replace the operator between two operands; `old` is a pattern that matches it."""
        start = self._end(left)
        between = self._data[start : self._start(right)].decode()
        found = re.search(old if old[0].isalpha() else re.escape(old), between)
        if found and "#" not in between[: found.start()]:
            self._add(kind, start + found.start(), start + found.end(), new)

    # Definitions

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._names.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def _visit_function(self, node: Function) -> None:
        if node.name in ("__repr__", "__str__"):
            return
        self._names.append(node.name)
        self._functions.append(node)
        self._early_returns(node)
        for statement in node.body:
            self.visit(statement)
        self._functions.pop()
        self._names.pop()

    def _early_returns(self, node: Function) -> None:
        """Return before each statement but the first, where the function returns nothing."""
        if not (isinstance(node.returns, ast.Constant) and node.returns.value is None):
            return
        if node.name == "__init__" or any(map(_is_yield, _own_nodes(node))):
            return
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        for statement in body[1:]:
            is_last_effect = statement is body[-1] and self._is_effect(statement)
            if not is_last_effect and not isinstance(statement, ast.Return):
                start = self._start(statement)
                indent = " " * statement.col_offset
                self._add(EARLY_RETURN, start, start, f"return\n{indent}")

    # Statements

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave checks of the code alone."""

    def visit_Expr(self, node: ast.Expr) -> None:
        if not _is_unseen(node.value):
            self._drop(node)
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._drop(node)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._drop(node)
        if (pair := _ARITHMETIC.get(type(node.op))) and not isinstance(node.value, _TEXTS):
            old, new = pair
            self._replace_between(OPERATOR, node.target, node.value, f"{old}=", f"{new}=")
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._drop(node)
        if node.value is not None:
            self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._drop(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace(DROPPED_EFFECT, node, "pass")

    def _drop(self, node: ast.stmt) -> None:
        if self._is_effect(node):
            self._replace(DROPPED_EFFECT, node, "pass")

    def _is_effect(self, node: ast.stmt) -> bool:
        """Return whether the function does without a statement, but what is outside does not."""
        targets: Sequence[ast.expr]
        match node:
            case ast.Expr(value=ast.Constant() | ast.Yield() | ast.YieldFrom()):
                return False
            case ast.Expr(value=value):
                return not _is_unseen(value)
            case ast.Assign(targets=targets):
                pass
            case ast.AnnAssign(target=target, value=ast.expr()):
                targets = [target]
            case ast.Delete(targets=targets):
                pass
            case ast.AugAssign():
                return True
            case _:
                return False
        in_init = bool(self._functions) and self._functions[-1].name == "__init__"
        return not in_init and all(isinstance(t, ast.Attribute | ast.Subscript) for t in targets)

    def visit_Return(self, node: ast.Return) -> None:
        returns = self._functions[-1].returns if self._functions else None
        is_decision = isinstance(returns, ast.Name) and returns.id == "bool"
        if is_decision and node.value is not None and not isinstance(node.value, ast.Constant):
            for new in ("True", "False"):
                self._replace(EARLY_RETURN, node.value, new)
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(LOOP, node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(LOOP, node, "break")

    # Conditions

    def visit_If(self, node: ast.If) -> None:
        self._condition(node.test, ("True", "False"))
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._condition(node.test, ("False",))
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test, ("True", "False"))
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._condition(test, ("True",))
        self.generic_visit(node)

    def visit_match_case(self, node: ast.match_case) -> None:
        if node.guard is not None:
            self._condition(node.guard, ("True", "False"))
            self.visit(node.guard)
        for statement in node.body:
            self.visit(statement)

    def _condition(self, test: ast.expr, always: Sequence[str]) -> None:
        if isinstance(test, ast.Constant):
            return
        for new in always:
            self._replace(DROPPED_CONDITION, test, new)
        is_not = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        has_opposite = (
            isinstance(test, ast.Compare)
            and len(test.ops) == 1
            and isinstance(test.ops[0], _OPPOSITES)
        )
        if not is_not and not has_opposite:
            self._replace(NEGATED, test, f"not ({self._text(test)})")

    # Expressions

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave texts alone."""

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.body)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._replace(OPERATOR, node, f"({ast.unparse(ast.BoolOp(other, node.values))})")
        for dropped in node.values:
            left = [value for value in node.values if value is not dropped]
            kept = left[0] if len(left) == 1 else ast.BoolOp(node.op, left)
            self._replace(DROPPED_CONDITION, node, f"({ast.unparse(kept)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        has_text = any(
            isinstance(each, _TEXTS)
            or (isinstance(each, ast.Constant) and isinstance(each.value, str | bytes))
            for each in (node.left, node.right)
        )
        if (pair := _ARITHMETIC.get(type(node.op))) and not has_text:
            self._replace_between(OPERATOR, node.left, node.right, *pair)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
                self._by_one(node, -value)
                return
            case ast.UnaryOp(op=ast.Not()):
                self._replace(REMOVED_NOT, node, f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = pairwise([node.left, *node.comparators])
        for operator, (left, right) in zip(node.ops, operands, strict=True):
            self._replace_between(COMPARISON, left, right, *_COMPARED[type(operator)])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(CONSTANT, node, str(not node.value))
        elif isinstance(node.value, int):
            self._by_one(node, node.value)

    def _by_one(self, node: ast.expr, value: int) -> None:
        for new in (value + 1, value - 1):
            self._replace(CONSTANT, node, str(new))

    def visit_Call(self, node: ast.Call) -> None:
        name = _last_name(node.func)
        if isinstance(node.func, ast.Name) and name in _OTHER_FUNCTION:
            self._replace(OPERATOR, node.func, _OTHER_FUNCTION[name])
        if name not in _ORDERED:
            for left, right in pairwise(node.args):
                if not isinstance(left, ast.Starred) and not isinstance(right, ast.Starred):
                    start, end = self._start(left), self._end(right)
                    between = self._data[self._end(left) : self._start(right)].decode()
                    new = f"{self._text(right)}{between}{self._text(left)}"
                    self._add(SWAPPED, start, end, new)
        self.generic_visit(node)


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions within it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _is_yield(node: ast.AST) -> bool:
    return isinstance(node, ast.Yield | ast.YieldFrom)


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_unseen(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _last_name(node.func) in _UNSEEN
