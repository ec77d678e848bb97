"""Columns of records with a schema: JSON, Avro and Protobuf, as functions for `select`.

Functions, no framework: each takes a column of bytes and returns a column. They live in
`json_column`, `avro_column` and `protobuf_column`. Nothing is imported here: Avro and Protobuf need
the packages of the extra `schemas`.
"""
