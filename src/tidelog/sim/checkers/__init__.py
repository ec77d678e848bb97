"""Invariants of every run, checked independently of the cluster, most of them after every event.

`replication_checker` compares what a run shows (`sim/observed`), and `client_checker` compares it
with the responses to clients. No checker uses the code that it judges, except to ask a broker for
its claims.
"""
