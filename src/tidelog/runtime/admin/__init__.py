"""The admin port of a broker: HTTP on a separate listener (`admin.listener`).

`http_messages` reads requests and makes responses. `http_server` serves the routes of any program,
within limits of memory and time. `routes` holds the functions that respond, by method and path.

`admin_port` opens the admin port of a broker: `/metrics` by `exposition` with the process's own
`process_readings`, `/history` by `history` with its `history_series` and their `history_ring`,
`/healthz` and `/readyz` by `probes`. Other parts add routes to the port's
`Routes`.
"""
