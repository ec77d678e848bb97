"""Code that every layer shares: types, errors, configuration, limits, tasks, ports, counters.

This package uses no wire protocol, files, sockets or clocks.

Values: `dataclass` (dataclasses whose methods are generated at first use), `types`, `errors`,
`names` (of topics), `epochs`, `eligible_replicas`, `shrink_causes`, `leader_wait`, `authorization`,
`protocol_level`, `string_hash`. Texts for people: `columns` (of tables) and `wording`.

Outside world and time: `ports` and `clock` declare the interfaces to files, sockets and time for
`tidelog.broker` and the packages below it. `tasks`, `completion` and `pauses` behave equally under
asyncio and under virtual time. `coordinator_shard` is the interface between a broker and its
coordinators.

Limits: `limits` bounds every quantity that a peer can increase. `receive_budget` and
`response_budget` bound memory, `disk_reads` bounds disk reads by log directory. `buffers` reuses
large buffers, `checksums` computes CRC-32C.

Configuration of a broker: `broker_keys`, `config_keys`, `log_dir_keys`, `reassignment_keys`,
`throttle_keys` and `shared_keys` declare the keys, and `config` reads their values. `config_text`
parses files. `config_checks`, `listeners` and `log_dirs` check values.

Configuration of a topic and changes at run time: `topic_config`, `dynamic_config`. `config_entries`
makes the entries of DescribeConfigs, and `config_reference` the page docs/configuration.md.

Kafka's other keys: `kafka_key_table`, `kafka_keys`, `kafka_differences`, and `unsupported` (why a
key has no effect).

Counters: `metrics`, `recent_buckets` (quantiles and rates), `operation_times` of disks, `sometimes`
(names of rare states).
"""
