"""`readStream.format("tidelog")`: offsets, admission, changes of topics, lag, group commits.

Nothing is imported here: Spark loads the reader only for a query that streams.
"""
