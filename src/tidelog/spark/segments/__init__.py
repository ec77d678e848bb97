"""Log directories without brokers: listing their files, scanning and reading their batches.

`listing` lists the content of log directories, read with `directory_files`. `replica_choice`
chooses one replica of each partition. `batch_scan` scans the batches of a file, and its fast
implementation is `_scan.c`. `resync` finds the next batch after damage, and `offset_lookup` the
position of an offset.

In Spark, `segment_reader` is the reader, and `segment_reading` returns the rows. To plan a query,
`segment_client` finds topics and offsets in the files instead of asking brokers.
"""
