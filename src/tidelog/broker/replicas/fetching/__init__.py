"""The fetches that this broker serves, those that it sends, and what the throttle does to them.

Served: `fetch_sessions` (KIP-227) hold what a reader wants, `delayed_fetch` is one fetch.
`fetch_checks` decides whether it may read here. `fetch_growth` is what it can still get,
`fetch_reads` its reads from the disk.

Sent: `fetchers`, each with a `followed_partition` for every partition that it copies.

Throttling of replication (R15): `throttled_reads` is the leader's side in one fetch.
`throttle_watch` warns of replicas that never catch up.
"""
