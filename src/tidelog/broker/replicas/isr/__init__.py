"""ISR changes of the partitions that this broker leads.

Leaders see one queue (`IsrChanges`), and `isr_changes` chooses which it is.
`alter_partition_manager` sends the changes to the controller in the form of
`alter_partition_requests`. `state_node_writer` writes them into state nodes below protocol level
2.7 (A12).

Looks at the result: `foreign_isr_changes` handles changes that the leader did not request (A3, A9).
`frozen_watermarks` reports partitions that commit nothing because other replicas are eligible (E1).
"""
