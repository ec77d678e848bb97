"""Topics: creation, deletion, and changes of their nodes in the store.

`creation` and `deletion` serve requests and carry them through. `readings` adopts the topics'
nodes that were read, and `edits` judges nodes that another writer changed. `changes` defines the
facts about topics.
"""
