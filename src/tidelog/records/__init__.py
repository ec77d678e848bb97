"""Record batches (magic 2): views, validation, compression, records, building, control records.

Bytes only: no files, no sockets, no clock. Reading any bytes gives a value or a CorruptBatch.
"""
