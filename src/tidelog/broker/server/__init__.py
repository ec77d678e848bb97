"""Connections of clients and brokers, and their requests, from the socket to a handler and back.

A connection decodes requests, begins them in order as soon as admission allows, and sends the
responses in the same order. For this package, a handler is a function that takes a request.

`server` accepts connections, and `connections` has the class of a connection. `connection_limit`
bounds the number of connections, and `broker_claims` judges which connections belong to brokers.
`idle_connections` closes idle connections.

`requests` defines a request, and `served` an API with its description and its handler. `admission`
decides which requests must wait before they begin. `dispatch` calls a request's handler, and
`steps` run around every handler. `timers` has the timeouts of waiting requests, and `fence` whether
the broker may serve (V47).

`request_meters` measures requests, and `metrics` declares their metrics. `request_log` logs
completed requests on demand. `interception` drops, delays and refuses requests in tests.
"""
