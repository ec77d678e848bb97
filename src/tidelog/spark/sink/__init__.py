"""The sink of `format("tidelog")`: batch writes and streams.

`writers` has the writers that Spark calls, with the options of `settings`. `write_task` is one
task: `row_columns` checks its columns, `placement` chooses partitions, and `record_payloads` makes
the records. `batch_marks` names the write in a header, so that readers can drop repeated batches.
"""
