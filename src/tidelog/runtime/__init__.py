"""The real outside: sockets, threads, files, clocks, stores, and the broker's process."""
