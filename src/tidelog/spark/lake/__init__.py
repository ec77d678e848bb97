"""Lake tables: a topic as a Delta or Iceberg table, with offsets and rows in one commit.

`protocol` decides what a run does after each answer of a table's store. `state` has the values:
offsets, files, changes. `table` is the interface of tables, `delta` implements it. `runs` commits a
run, `staging` writes and names its files in a `stores` place, and `vacuum` deletes what dead runs
left.
"""
