"""Mutants: defects put into the brokers during a run, to prove that a checker notices them.

A job names its mutant by a text `MODULE:NAME`, because another process may run the job: it imports
the module and takes the attribute. This package itself has no mutants. The mutants of the project's
tests are `tests.support.mutants:NAME`, which can be imported in a checkout.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, runtime_checkable

from tidelog.core.errors import TidelogError


class MutantNotFoundError(TidelogError):
    """The error for a text that is no mutant's name; the message has the reason and the expected
    form.
    """


@runtime_checkable
class Mutant(Protocol):
    """A mutant: a replacement of a part of the brokers' code by a defect."""

    @property
    def profile(self) -> str:
        """The profile with which seeds reveal (kill) the mutant."""

    def in_force(self) -> AbstractContextManager[None]:
        """Return a context that puts the defect into the brokers and removes it at the end."""


def load(name: str) -> Mutant:
    """Import the mutant that a text names; raise MutantNotFoundError if there is none."""
    module_name, _, attribute = name.partition(":")
    if not attribute or not all(word.isidentifier() for word in module_name.split(".")):
        raise MutantNotFoundError(
            f"no mutant {name!r}: MODULE:NAME is expected, in a checkout of tidelog"
            f" tests.support.mutants:{attribute or module_name}"
        )
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise MutantNotFoundError(f"no mutant {name!r}: {error}") from error
    if not isinstance(found, Mutant):
        raise MutantNotFoundError(
            f"no mutant {name!r}: it is {found!r}; an object with `profile` and `in_force` is one"
        )
    return found


@contextmanager
def applied(name: str) -> Iterator[None]:
    """Apply a mutant within the context; apply none for an empty name."""
    if not name:
        yield
        return
    with load(name).in_force():
        yield
