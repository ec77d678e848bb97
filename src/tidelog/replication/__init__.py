"""Decisions of one replica of one partition: leader, follower, ISR, truncation, high watermark.

Pure: no I/O, no clock (time is an argument), no logging, no randomness. Progress changes in place
in slotted objects that one core owns. Rare states are immutable values. Due actions are returned as
effects that the broker runs in order. Each core offers `key()` (its whole state as a hashable
value) and `copy()`, so that the model checker explores the very code that brokers run.
"""
