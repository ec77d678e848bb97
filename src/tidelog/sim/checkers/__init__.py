"""What must hold in every run, checked after every event and apart from the cluster.

`logs` reads the replicas' files, `published` the store's commits, `replication` compares both with
what brokers claim, `clients` with what clients were told, `final` looks at the end. None of them
uses the code that it judges, except to ask a broker for its claims.
"""
