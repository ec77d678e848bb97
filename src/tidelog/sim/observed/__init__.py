"""The observed state of a run: published state, the replicas' files, the claims of brokers.

`published_state` follows the store's commits, and `replica_logs` reads the replicas' files, both
without the code under test. `claims` asks a running broker for its roles. Checkers compare
published state, the replicas' files, and the brokers' claims about replicas. `moves` checks
reassignments and their queue as the store sees them.
"""
