"""The metadata store's contract, and the paths and JSON of every node.

Read `store` first, which defines the contract; the implementations of the store share `paths`,
`tree` and `watches`. `layout` has the path of every node. `layout_brokers`, `layout_topics`,
`layout_admin` and `layout_reassignments` encode and decode the JSON of nodes, with the readers of
`json_fields`.
"""
