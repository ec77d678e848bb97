"""The live view of a cluster in the terminal, for `tidelog top`.

`frame` has the document of one look at the cluster. `look` reads the cluster and the admin ports of
its brokers, and `frame_parts` makes the tables of a frame from these readings. `views` are the
tables of a frame for people, at any width of the terminal. `screen` draws them with textual (extra
"top"), which no other module of this package needs.
"""
