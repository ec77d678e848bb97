"""The web console: pages about a cluster in a process of their own (extra "console").

The console reads a cluster with Kafka's protocol, and with tidelog's own APIs where brokers serve
them. A reading (`readings`) has the state of the cluster at one time; `samples` has numbers over
time. `reader` reads the parts of a reading, and `poller` reads all parts for all viewers, within a
`processor_budget`; `parallel_poller` reads parts side by side, for `tidelog top`. `histories` reads
the last 24 hours. `views` are pure functions from a reading to the JSON document of a page.
`lookups` reads records and configurations on request, `record_filters` chooses records, and
`record_forms` shows them as text, JSON or hex. `record_schemas` decodes Avro and Protobuf.

`actions` has the changes of the cluster that a viewer may request with the console's secret token;
`move_plans` has the changes of reassignments. `security` checks requests, and `assets` has the
files of the front end. `hub` serves live pages, `json_documents` makes their JSON, `app` has the
routes, and `server` runs the web server.
"""
