"""Columns of records with a schema: JSON, Avro and Protobuf, as functions for queries.

Functions, no framework: each takes a column of bytes and returns a column. Nothing is imported
here: Avro and Protobuf need the packages of the extra of this name.

The functions: `json_column`, `avro_column` and `protobuf_column`. Types: `avro_types` and
`protobuf_types`. They share `decoded_column` (a decoder as a column function) and `bad_records`
(records that do not fit). Confluent's conventions: `wire_format` and `registry`.
"""
