"""The admin port of a broker: HTTP on a separate listener (`admin.listener`).

`http_messages` reads requests and makes responses. `http_server` serves the routes of any program,
within limits of memory and time. `routes` holds the functions that respond, by method and path.

`admin_port` opens the admin port of a broker: `exposition` makes the text of `/metrics`, and
`process_readings` reads the metrics of the process. `history` serves `/history` with the series of
`history_series`, which `history_ring` stores. `probes` serves `/healthz` and `/readyz`. Other parts
add routes to the port's `Routes`.
"""
