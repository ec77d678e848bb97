"""Lake tables: a topic as a Delta or Iceberg table, with offsets and rows in one commit.

A *run* stages data files and then commits them once. `protocol` decides what a run does after each
answer of a table's store. `state` has the values: offsets, files, changes. `table` is the interface
of tables. `delta` (with `delta_features`) and `iceberg` (with `iceberg_library`, `iceberg_commits`,
`iceberg_manifests`, `iceberg_vacuum` and `field_ids`) implement this interface. `places` chooses
the implementation by the place that the user names, and `commits` reads the table's log through the
interface. `runs` commits a run, unless `rollbacks` shows that the offsets noted in commits no
longer match the table. `evolution` adds the run's new columns, and `partitioning` has the partition
columns and their values. `row_checks` refuses rows that no reader could read, `staging` writes and
names the run's files, `stores` keeps them, and `vacuum` deletes the files of dead runs. The
pipelines of `tidelog.spark.pipelines` write and read the files.
"""
