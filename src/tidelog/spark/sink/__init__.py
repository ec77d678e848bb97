"""The sink of `format("tidelog")`: `df.write` and `df.writeStream`."""
