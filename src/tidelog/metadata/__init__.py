"""The metadata store's contract, and the paths and JSON of every node.

Read `store` first, which defines the contract; `paths`, `tree` and `watches` are parts that stores
share. `layout` has the path of every node. `layout_brokers`, `layout_topics`, `layout_admin` and
`layout_reassignments` encode and decode the JSON of nodes, with the readers of `json_fields`.
"""
