"""Metadata stores that reach outside: an SQLite file of one machine, or ZooKeeper's servers.

`opening` makes the store that a configuration names. `transfer` moves metadata between stores (S6).

The embedded store: `sqlite` is the loop's side, `sqlite_requests` passes requests to the thread of
`sqlite_worker`. That thread uses `sqlite_database` (connection, sessions), `sqlite_nodes` (the
tree) and `sqlite_watches`. Between processes: `leases`, `keeper`, `processes`, `wakeups`,
`store_lock`. `local_disk` refuses network file systems.

ZooKeeper: `zookeeper` is the loop's side, `zookeeper_thread` keeps the session. It uses
`zookeeper_servers` (addresses, credentials), `zookeeper_conversation` (one connection),
`zookeeper_wire` (bytes), `zookeeper_watches` and `zookeeper_chroot`.
"""
