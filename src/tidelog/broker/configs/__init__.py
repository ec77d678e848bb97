"""Dynamic configuration: requests that change it, its nodes in the store, its effects (V25).

`config_requests` is the common part of AlterConfigs and IncrementalAlterConfigs. `config_store`
writes the nodes of configurations, on any broker that gets a request. `live_configs` applies
changes while the broker runs (KIP-226). `logger_levels` changes the levels of this broker's loggers
(KIP-412).
"""
