"""Dynamic configuration: requests that change it, its nodes in the store, its effect (V25).

`config_requests` is the common part of AlterConfigs and IncrementalAlterConfigs. `config_store`
writes the nodes of configurations; any broker does so on request. `live_configs` follows the
changes while the broker runs (KIP-226). `logger_levels` changes the levels of this broker's loggers
(KIP-412).
"""
