"""audit: every batch of every replica checked, replicas compared, damage named to the byte."""
