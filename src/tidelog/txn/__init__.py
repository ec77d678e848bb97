"""Decisions of the coordinator of transactions (rules T1 to T27, T50 to T63; as of Kafka 4.3).

This package is pure: no I/O, no clock (time is an argument), no logging, no randomness. A
`TransactionPartition` coordinates the transactional ids of one partition of `__transaction_state`.
Each request that the broker passes on concerns one transactional id (`asked`).

Read `states` and `records` first: the states of a transaction, and what a record stores.
`transitions` computes the next state for each transition. `turn` has the state of one id with its
pending transition, and collects `effects`. `initialising` (table 1), `adding` (table 2) and
`ending` (tables 3 and 4) decide requests. `clean_up` aborts transactions after their timeout and
removes unused ids, and `listing` describes transactions. `settling` handles the outcome of an
append, and `partition` is the coordinator itself. `settings` has the settings of operators.
"""
