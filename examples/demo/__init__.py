"""The demo: real flights through two kills into a Delta table, nothing lost and nothing doubled."""
