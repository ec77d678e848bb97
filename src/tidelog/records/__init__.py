"""Record batches (magic 2): views, validation, compression, records, building, control records.

Bytes only: no files, no sockets, no clock. Reading any bytes gives a value or a CorruptBatch.

A batch: `batch` is a view over its header, `reader` yields its records, `builder` makes one,
`control` has the markers of transactions.

A client's batch at the leader: `checking` its records by `walk`, whose fast form is `_walk.c`.
`compression` has the codecs, `lz4_frames` finds frames that Kafka's clients cannot read,
`recompressing` changes the codec.

Compaction: `rewriting` keeps some records of a batch.
"""
