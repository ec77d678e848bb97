"""Log directories without brokers: their files listed, their batches scanned and read."""
