"""The real environment of a broker: its process, sockets, threads, files, clocks and stores.

The process: `main` runs a broker. `config_files` reads its configuration. `signals`,
`standard_streams`, `memory` and `watchdog` belong to the process. `logging` writes the log, with
`log_floods`, `log_formats` and `log_files`; `banner` has its first lines. `parent` lets the kernel
end a process when its parent process ends. `supervisor` reports to systemd.

The ports of `core.ports`: `clock`, `files` with `disk_faults`, `lanes`, `network` with `turns`.
`interception` reads the interception rules of tests from a directory. `stores` holds the metadata
stores. `admin` is the admin port: metrics and probes over HTTP.

Drivers of `tidelog.client`: `broker_connection` (one socket), `blocking`, `blocking_consumer`.
`leader_connection` and `pipelined_producer` have several requests in flight. `deadline_reads` runs
reads side by side.

`schema_registry` reads schemas over HTTP.

Help texts: `extras` returns the command that installs a missing extra, and `extensions` names what
is slower without compiled modules.
"""
