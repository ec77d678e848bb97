"""Views: pure functions from a reading of the cluster to the JSON document of a page.

No view reads the cluster, a clock or the network, so that tests need no browser and no broker.

`tables` filters, sorts and limits rows. `findings` has findings with their next steps. `history`
has charts of the last 24 hours, and the page of a broker. `cluster`, `topics`, `partition`,
`groups`, `moves`, `disks`, `events` and `failovers` have the pages. `causes` finds the causes of an
event. `catalogue` lists the pages by name.
"""
