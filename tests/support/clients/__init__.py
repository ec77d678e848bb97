"""Other projects' clients: fetched, built and started, or absent with the reason."""
