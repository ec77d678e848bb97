"""The simulator: whole brokers, their store and clients in one process, under virtual time.

Everything is drawn from one integer seed, so that a run can be repeated event by event
(DESIGN.md, rule 5). The brokers are the very composition that real processes start.
"""
