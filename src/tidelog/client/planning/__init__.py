"""Plans of reassignments: the moves that bring a cluster to a wanted state, with reasons (R17).

Planning is pure: it reads no clock, sends no request, and gives equal plans for equal states.

`cluster_state` is the input, with racks; `moves` is the result. `placement` is the placement under
construction, with `size_index` (replicas by size) and `leader_graph` (leadership transfers without
a copy).

One module for each kind of plan: `replication_factor`, `emptying` (brokers without replicas),
`topic_placement` (a topic on given brokers), `rebalancing`. The optimiser in
`tidelog.spark.pipelines` also weighs rates of load; the plans of this package need no samples and
no solver.
"""
