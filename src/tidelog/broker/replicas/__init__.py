"""The replicas of this broker: their roles, the commands that change these, and replication.

A `Partition` joins a log with the role that the pure decisions of `tidelog.replication` give it.
The replica set holds all partitions and applies the controller's commands. Fetchers copy partitions
that other brokers lead. Fetch and produce requests that must wait do so in purgatory.
"""
