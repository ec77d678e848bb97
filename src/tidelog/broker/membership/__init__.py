"""This broker as a member of the cluster: its session, its registration, and its departure.

`session` registers the broker in the store and renews its session. `registration_watch` notices
when its registration is gone (V4). `self_fencing` confirms the session after a pause before the
broker serves again (V47). `store_history` finds a store that is older than the logs (E8).
`store_trouble` responds to administrators while the store cannot be reached. `controlled_shutdown`
moves the leaderships away before a stop (V43).

A member's requests to the controller: `producer_ids` (blocks of ids, G3) and `auto_creation`
(topics that are created on first use).
"""
