"""Topics: creation, deletion, and what the store holds of them.

`creation` and `deletion` serve requests and carry them through; `readings` takes over what was read
of topics' nodes, `edits` judges nodes that somebody else changed. `changes` are the facts.
"""
