"""The fetches that this broker serves and sends, and how the throttle affects them.

`fetch_sessions` remembers which partitions a reader fetches (KIP-227), and `delayed_fetch` serves
one fetch. `fetch_checks` decides whether a fetch may read a partition on this broker.
`fetch_growth` computes whether the response of a waiting fetch can still grow, and `fetch_reads`
has the fetch's reads from disk.

`fetchers` has the fetchers, which send fetches; each fetcher has a `followed_partition` for every
partition that it copies.

`throttled_reads` applies the leader's side of the replication throttle to one fetch (R15), and
`throttle_watch` warns of replicas that cannot catch up.
"""
