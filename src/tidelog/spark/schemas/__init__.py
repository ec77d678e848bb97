"""Columns of records with a schema (JSON, Avro and Protobuf), as functions for queries.

This package is no framework: each function takes a column of bytes and returns a column. This
module imports nothing, because Avro and Protobuf need Python packages of tidelog's extra "schemas".

The functions are `json_column`, `avro_column` and `protobuf_column`. `avro_types` and
`protobuf_types` have the column types. The functions share `decoded_column` (a decoder as a column
function) and `bad_records` (records that do not fit their schema). Confluent's conventions are in
`records/confluent_format` and `runtime/schema_registry`.
"""
