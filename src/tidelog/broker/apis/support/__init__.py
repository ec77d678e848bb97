"""The shared parts of API modules; no module of this package serves an API.

`context` holds the broker's parts that handlers use. `errors` derives the responses to requests
that fail as a whole. `replica_ids` reads the replica id of a request (L1). `authorized_operations`
encodes the operations that a client is allowed (KIP-430).
"""
