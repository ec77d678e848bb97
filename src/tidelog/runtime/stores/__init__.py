"""The real metadata stores: an SQLite file on one machine, or ZooKeeper.

`opening` makes the store that a configuration names. `transfer` copies metadata between stores
(S6).

The embedded store: `sqlite` runs on the loop, `sqlite_requests` passes requests to the thread of
`sqlite_worker`. The store's thread uses `sqlite_database` (connection, sessions), `sqlite_nodes`
(the tree) and `sqlite_watches`. `leases`, `keeper`, `processes`, `wakeups` and `store_lock`
coordinate processes. `local_disk` refuses network file systems.

ZooKeeper: `zookeeper` runs on the loop, `zookeeper_thread` keeps the session. The modules for
ZooKeeper use `zookeeper_servers` (addresses, credentials), `zookeeper_conversation` (one
connection), `zookeeper_wire` (bytes), `zookeeper_watches` and `zookeeper_chroot`.
"""
