"""Connections of clients and brokers, and their requests, from the socket to a handler and back.

A connection decodes requests, begins them in their order when admission lets it, and sends the
responses in the same order. This package knows handlers only as functions of a request.

Connections: `server` accepts them, `connections` is one of them. `connection_limit` bounds their
number, `broker_claims` recognises those of brokers. `idle_connections` closes the idle ones.

Requests: `requests` and `served` are the values, a request and an API with its card. `admission`
decides which requests wait before they begin. `dispatch` calls the handler, `steps` run around
every handler. `timers` ends waits, `fence` states whether the broker may serve (V47).

For tests: `interception` loses, holds and refuses requests.
"""
