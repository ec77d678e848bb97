"""The sink of `format("tidelog")`: batch writes and streams.

`writers` are what Spark drives, with the options of `settings`. `write_task` is one task:
`row_columns` checks its columns, `placement` chooses partitions, `record_payloads` makes the
records. `batch_marks` names the write in a header, against repeated batches.
"""
