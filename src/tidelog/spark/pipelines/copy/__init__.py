"""Copies of topics in another cluster, with a table of all offsets.

Batches are copied unchanged. The broker's check of sequence numbers prevents duplicates, even if
another run repeats a batch.

`run` is the pipeline. `targets` checks and creates the topics. `ledger` is the directory of a copy,
with its `offset_map`. `transfer` is the task: it sends the batches that `transcribing` prepares,
and `tail` finds the records that an earlier run stored.

After the copy: `group_offsets` translates committed offsets, `verification` compares both clusters,
`outcome` is the report.
"""
