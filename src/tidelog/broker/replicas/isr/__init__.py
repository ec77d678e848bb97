"""ISR changes of the partitions that this broker leads.

A leader puts its changes into a queue; `isr_changes` chooses the kind of queue for the broker.
`alter_partition_manager` sends the changes to the controller, in the form of
`alter_partition_requests`. If `inter.broker.protocol.version` is below 2.7, `state_node_writer`
writes the changes into state nodes instead (A12).

`foreign_isr_changes` detects changes that the leader did not request (A3, A9). `frozen_watermarks`
reports partitions that commit nothing because replicas outside the ISR are eligible (E1).
"""
