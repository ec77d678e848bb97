"""Topics: creation, deletion, and what the store holds of them.

`creation` and `deletion` serve requests and carry them through. `readings` takes over topics' nodes
that were read, and `edits` judges nodes that another writer changed. `changes` are the facts.
"""
