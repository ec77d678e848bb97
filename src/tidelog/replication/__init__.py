"""Decisions of one replica of one partition: leader, follower, ISR, truncation, high watermark.

Pure: no I/O, no clock (time is an argument), no logging, no randomness. Progress changes in place
in slotted objects that one core owns. Rare states are immutable values. Due actions are returned as
effects that the broker runs in order. Each core offers `key()` (its whole state as a hashable
value) and `copy()`, so that the model checker explores the very code that brokers run.

`commands` are the controller's, `effects` the actions that decisions request.

A leader: `leader`, with each follower's `progress` and `lag`. Its `isr` loses members for the
causes in `shrinks`; `direct_isr` writes changes into the state node (A12). `watermark` is the high
watermark, `synced_offsets` what counts for it under `flush.before.ack` (V69). `pending_reads` and
`reads_under_way` are reads that have not finished (F5 to F7, F11). `takeover` is the end of a
failover (V80).

A follower: `follower`, and `truncation` to where its log diverges from the leader's.

Throttling (R15): `throttle`, `byte_rate`, `throttle_progress`.

Other replicas: `directory_move` (a copy in another directory, D11) and `stray_checks` (strays that
return, V35).
"""
