"""This broker as a member of the cluster: its session, its registration, and its departure.

`session` registers the broker in the store and renews its session. `registration_watch` notices
when the broker's registration is lost (V4). `self_fencing` fences the broker after a pause of its
process, until the store confirms the session (V47). `store_history` detects a store that is older
than the logs (E8). `store_trouble` responds to administrators while the store cannot be reached.
`controlled_shutdown` moves the leaderships away before a stop (V43).

`metrics` counts the events of the session.

`producer_ids` requests blocks of producer ids from the controller (G3), and `auto_creation`
requests topics on first use.
"""
