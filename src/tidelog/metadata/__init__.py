"""The metadata store's contract, and the paths and JSON of every node in it."""
