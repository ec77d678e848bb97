"""The metadata stores behind one set of verbs, in this process and in processes of their own."""
