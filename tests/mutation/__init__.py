"""Mutants that a program draws: one small change of `src/` each, and which tests notice it.

The mutants of `tests.support.mutants` are written by someone who knows the rules. These are drawn
from all small changes that are possible (`changes`), by a seed (`drawing`). Each is put into a copy
of the checkout (`trees`), and judged by types, tests and the simulator (`judges`), which run as
commands with limits (`limited`): `by_tests` runs tests of pytest, of which `reach` chooses those
that call the changed function, and `small_worlds` and `whole_runs` run seeds of the simulator.
`verdicts` keeps what came out, and `page` writes docs/internals/drawn-mutants.md. `python -m
tests.mutation` does all of it.
"""
