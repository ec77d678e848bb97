"""Topics copied from cluster to cluster, with every offset mapped.

`run.copy` is the pipeline. Batches are copied as they are; the broker's check of sequence numbers
keeps every record from being stored twice, whoever sends it again.
"""
