"""Record batches (magic 2): views, validation, compression, records, building, control records.

Bytes only: no files, no sockets, no clock. Whatever the bytes, reading them gives a value or a
CorruptBatch.
"""
