"""Small worlds: real code without the rest of a cluster, against a reference that is much simpler.

A whole run takes most of a second and reaches a rare state a few times in a thousand runs. A small
world plays hundreds of histories in the same time. `small_world` is the interface of a world and
the list of worlds.

The world `replica_set` has one partition's leader and followers. `replica_set_world` is its state,
with each broker's replica in `replica_set_brokers` and published state in `replica_set_register`.
`replica_set_fetch_steps`, `replica_set_controller_steps` and `replica_set_broker_steps` have the
kinds of steps. `replica_set_reference` states what must hold after each step, and
`replica_set_facts` keeps what followers have shown their leader. `replica_set_rarities` names the
states from which histories branch. `replica_set_values` has settings and messages.

The world `one_log` has one partition's log in one or two log directories. `log_history` draws and
carries out operations on the log, and `log_reference` states what a crash must leave of the log.
`log_reading` starts a process on the directories and reads the log. `crash_points` crashes the
history at every call of a port; `crash_losses` lists what a power loss may leave there.
`small_process` is a process with a clock and a tracer, and `stepped_lane` its queue of file
operations, both without an event loop.

The world `coordinator` has two brokers that coordinate one partition of an internal topic in turn.
`coordinator` draws and branches its histories. `coordinator_world` is its state, with the partition
in `coordinated_partition` and a broker's loop, clock and services in `coordinator_process`. In the
steps of `coordinator_steps`, brokers act, leaders change and time passes. These modules work with
any kind of coordinator. The kind under test, called their tenant, is consumer groups:
`group_tenant` sends requests and checks answers, `group_steps` has the steps of clients, and
`group_asks` the requests of clients. `coordinator_rarities` names the states from which histories
branch. `group_reference` states what must hold, with the errors of requests in `group_expectations`
and the content of the log in `group_log_values`.

The world `controller_search` has real controllers over one store. `controller_world` is its state,
with each controller's process in `controller_host` and each broker's script in `controller_broker`.
`controller_store_steps`, `controller_broker_steps` and `controller_admin_steps` have the kinds of
steps. `controller_reference` states what must hold at each write and each command, and
`controller_recovery` what must hold when all faults have ended. `stepped_store` is a metadata store
whose messages wait for the world, and `stepped_loop` an event loop that runs when the world lets
it.
"""
