"""The fetches that this broker serves and sends, and how the throttle affects them.

`fetch_sessions` (KIP-227) remember which partitions a reader wants, and `delayed_fetch` serves one
fetch. `fetch_checks` decides whether a fetch may read a partition on this broker. `fetch_growth`
computes what a waiting fetch can still get, and `fetch_reads` has its reads from disk.

`fetchers` send fetches, each with a `followed_partition` for every partition that it copies.

`throttled_reads` applies the leader's side of the replication throttle to one fetch (R15), and
`throttle_watch` warns of replicas that cannot catch up.
"""
