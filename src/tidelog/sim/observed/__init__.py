"""The observed state of a run, which checkers compare: published state, replicas' files, claims.

`published_state` follows the transactions of the metadata store, and `replica_logs` reads the
replicas' files, both without the code under test. `claims` asks running brokers for the roles and
the state of their replicas. `moves` checks reassignments and their queue by the nodes of the
metadata store.
"""
