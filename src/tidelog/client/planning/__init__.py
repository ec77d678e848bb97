"""Plans of reassignments: from a cluster's state and a wish to moves, each with its reason (R17).

Pure: plans read no clock, send nothing, and are the same for the same state.

`cluster_state` is the input, with racks; `moves` is the result. `placement` is the placement under
construction, with `size_index` (replicas by size) and `leader_graph` (leaderships that need no
copy).

A module per wish: `replication_factor`, `emptying` (brokers without replicas), `topic_placement` (a
topic on given brokers), `rebalancing`. `tidelog.spark.pipelines` has the optimiser that also weighs
rates of load; these plans need no samples and no solver.
"""
