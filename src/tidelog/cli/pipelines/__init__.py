"""The verbs of `tidelog pipeline`, a module each."""
