"""Invariants of every run, checked independently of the cluster, most of them after every event.

`replica_logs` reads the replicas' files, and `published_state` follows the store's commits.
`replication_checker` compares both with the claims of brokers, `client_checker` with the responses
to clients. No checker uses the code that it judges, except to ask a broker for its claims.
"""
