"""Topics copied from cluster to cluster, with every offset mapped.

Batches are copied as they are; the broker's check of sequence numbers keeps every record from being
stored twice, whoever sends it again.

`run` is the pipeline. `targets` checks and creates the topics. `ledger` is the directory of a copy,
with its `offset_map`. `transfer` is the task: it sends what `transcribing` makes of each batch, and
`tail` finds what an earlier run stored.

After the copy: `group_offsets` translates committed offsets, `verification` compares both clusters,
`outcome` is the report.
"""
