"""Decisions of one replica of one partition: leader, follower, ISR, truncation, high watermark.

This package is pure: no I/O, no clock (time is an argument), no logging, no randomness. Progress
objects are slotted and change in place; each has one owner. States that change rarely are immutable
values. Due actions are returned as effects that the broker runs in order. The leader and the
follower offer `key()` (the whole state as a hashable value) and `copy()`, so that the model checker
explores the same code that brokers run.

`commands` judges the controller's commands, and `effects` are the actions that decisions request.

`leader` is a leading replica, with each follower's `progress` and `lag`. Members leave the ISR
(`isr`) for the causes in `shrinks`, and `direct_isr` writes ISR changes into the state node (A12).
`watermark` computes the high watermark from log ends, or from `synced_offsets` under
`flush.before.ack` (V69). `pending_reads` and `reads_under_way` are reads that have not finished (F5
to F7, F11). `takeover` measures the end of a failover (V80).

`follower` is a following replica, and `truncation` finds the offset at which its log diverges from
the leader's log.

`throttle`, `byte_rate` and `throttle_progress` throttle replication (R15).

`directory_move` copies a replica to another log directory (D11), and `stray_checks` checks strays
that return (V35).
"""
