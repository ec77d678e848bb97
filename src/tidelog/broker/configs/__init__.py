"""Dynamic configuration: requests that change it, its nodes in the store, its effect (V25)."""
