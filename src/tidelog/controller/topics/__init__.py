"""Topics: creation, deletion, and changes of their nodes in the store.

`creation` and `deletion` serve requests to create and delete topics. `readings` applies the topics'
nodes that were read, and `edits` decides about nodes that another writer changed. `changes` records
in the controller's image that a topic was found, cannot be read, or is gone.
"""
