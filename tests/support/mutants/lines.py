"""Mutants of one changed line, `tests/rules/mutants.toml`: one or more for every rule in force.

A line mutant takes effect in the process: the functions that hold the line get the code of the
changed source. All who have imported them, under whatever name, then call the broken rule.
"""

from __future__ import annotations

import importlib
import inspect
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from tests.support.mutants.mutant import MutantGoneError

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "tests" / "rules" / "mutants.toml"


@dataclass(frozen=True, slots=True)
class LineMutant:
    """One changed line of a function below src/, without which a rule does not hold."""

    name: str
    rule: str
    file: str
    old: str
    new: str
    #: The defect in one sentence, for a mutant that a seed or a model kills, too; else empty.
    defect: str = ""
    #: As of `Mutant`.
    profile: str = "default"
    world: str = ""
    why_no_seed: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.file}: {self.new}"

    def applied(self, text: str) -> str:
        """Return the file's text with the rule broken; MutantGoneError."""
        if (count := text.count(self.old)) != 1:
            raise MutantGoneError(
                f"{self.name}: src/{self.file} has {self.old!r} {count} times, not once: name the"
                f" line that holds the rule now in {TABLE.name}"
            )
        return text.replace(self.old, self.new)

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Change the line within the context; MutantGoneError where that is impossible."""
        with ExitStack() as undo:
            for function, code in changed_functions(self):
                undo.callback(setattr, function, "__code__", function.__code__)
                function.__code__ = code
            yield


def changed_functions(mutant: LineMutant) -> list[tuple[FunctionType, CodeType]]:
    """Return the functions that hold the line of a mutant, with their code of the changed source.

    Raises MutantGoneError if the line is gone, or is not in a function.
    """
    path = ROOT / "src" / mutant.file
    sound = path.read_text(encoding="utf-8")
    before, after = (
        compile(text, path, "exec", dont_inherit=True) for text in (sound, mutant.applied(sound))
    )
    module = importlib.import_module(mutant.file.removesuffix(".py").replace("/", "."))
    found = [(_function(module, code), code) for code in _changed(before, after)]
    if not found:
        raise MutantGoneError(f"{mutant}: the line is not in a function, or changes nothing")
    return found


def read_table(path: Path = TABLE) -> dict[str, LineMutant]:
    """Return all line mutants by name, in the order of the table.

    Those without a name of their own are numbered within their rule: V4_1, V4_2.
    """
    found: dict[str, LineMutant] = {}
    for rule, entries in tomllib.loads(path.read_text(encoding="utf-8")).items():
        for number, entry in enumerate(entries, 1):
            mutant = LineMutant(**{"name": f"{rule}_{number}", "rule": rule, **entry})
            if mutant.name in found:
                raise ValueError(f"there are two mutants {mutant.name}")
            found[mutant.name] = mutant
    return found


def _changed(before: CodeType, after: CodeType) -> Iterator[CodeType]:
    """Yield the code of functions of modules and classes whose text differs."""
    for old, new in zip(_within(before), _within(after), strict=True):
        if old.co_flags & inspect.CO_OPTIMIZED:  # a function, not the body of a class
            if old != new:
                yield new
        else:
            yield from _changed(old, new)


def _within(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _function(module: object, code: CodeType) -> FunctionType:
    """Return the function of a module that was made of the same definition; MutantGoneError."""
    *outer, name = code.co_qualname.split(".")
    owner: Any = module
    for part in outer:
        owner = getattr(owner, part, None)
    found = inspect.getattr_static(owner, name, None)
    # Static methods and properties hold functions, and decorators wrap them.
    held = (getattr(found, each, None) for each in ("__func__", "fget", "fset", "func"))
    for each in (found, *held):
        function = each if each is None else inspect.unwrap(each)
        if not isinstance(function, FunctionType):
            continue
        if function.__code__.co_firstlineno == code.co_firstlineno:
            return function
    raise MutantGoneError(f"{code.co_qualname} is not found as it is defined")
