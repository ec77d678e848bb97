"""The metadata store's contract, and the paths and JSON of every node.

Begin with `store`, the contract; `paths`, `tree` and `watches` are parts that stores share.
`layout` has the path of every node. The JSON of nodes is in `layout_brokers`, `layout_topics`,
`layout_admin` and `layout_reassignments`, which read it with `json_fields`.
"""
