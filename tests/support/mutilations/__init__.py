"""A generator of mutilated log directories: damage of each kind at drawn places.

`sites` has healthy directories and the register of mutilations. `batches`, `segments` and
`directories` plant the damage. `drawing` draws mutilations from a seed. `page` writes the page of
invariants.
"""
