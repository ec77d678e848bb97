"""The web console: pages about a cluster in a process of their own (extra "console").

The console reads a cluster with Kafka's protocol, and with tidelog's own APIs where brokers serve
them. `readings` is what is known at one time, `samples` numbers over time. `reader` reads the parts
of a reading, and `poller` reads all of them for all viewers. `views` are pure functions from a
reading to a page's document. `lookups` reads records and configurations on request, and
`record_forms` shows records as text, JSON or hex.

`actions` are the changes that a viewer with the token may make. `security` checks requests,
`assets` has the files of the front end, `hub` serves live pages, `app` has the routes, and `server`
runs them.
"""
