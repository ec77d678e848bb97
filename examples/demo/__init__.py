"""The demo: real flights through two kills into Parquet, nothing lost and nothing doubled."""
