"""What several API modules share; no module here serves an API."""
