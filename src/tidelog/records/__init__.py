"""Record batches (magic 2): views, validation, compression, records, building, control records.

This package handles bytes only: no files, no sockets, no clock. Every reader returns a value or
raises a CorruptBatch, whatever the bytes.

For one batch, `batch` is a view over its header, `reader` yields its records, `builder` makes a
batch, and `control` has the markers of transactions.

For a client's batch at the leader, `checking` checks its records by `walk`, whose fast form is
`_walk.c`. `compression` has the codecs, `lz4_frames` finds frames that Kafka's clients cannot read,
and `recompressing` changes the codec.

For compaction, `rewriting` keeps some records of a batch.

`confluent_format` reads the head of a record that has the id of its schema.
"""
