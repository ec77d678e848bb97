"""The shared parts of API modules; no module here serves an API."""
