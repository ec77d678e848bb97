"""Log directories without brokers: their files listed, their batches scanned and read.

`listing` is the content of log directories, read with `directory_files`. `replica_choice` takes one
replica of each partition. `batch_scan` scans the batches of a file, whose fast form is `_scan.c`.
`resync` finds the next batch behind damage, `offset_lookup` the place of an offset.

In Spark: `segment_reader` is the reader, `segment_client` answers planning from files,
`segment_reading` returns the rows.
"""
