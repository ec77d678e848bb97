"""Limits on every quantity that a peer can increase, each with its reason (DESIGN.md, rule 10).

A limit that an operator may change has a configuration key, and this module has its default.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

#: `socket.request.max.bytes`, with Kafka's default. A request is one frame, held in memory.
MAX_REQUEST_BYTES = 100 * MIB
#: `queued.max.request.bytes`: limit on the bytes of the requests that all connections are
#: receiving; Kafka's default is no limit. tidelog's default has room for two of the largest
#: requests, or for 5 batches of 1 MiB in flight from each of 50 producers. Several brokers with
#: request budgets of 256 MiB fit on a machine with 4 GB.
QUEUED_REQUEST_BYTES = 256 * MIB
#: Size above which the broker counts the names or partitions that a request lists. A request below
#: `LISTING_REQUEST_BYTES` cannot list more entries than `MAX_LISTED_ENTRIES`.
LISTING_REQUEST_BYTES = MIB
#: Maximum number of entries that a large request may list in all its arrays together. Each entry
#: costs the loop microseconds, so more entries could block the loop for longer than the session
#: timeout. A request with more than `MAX_LISTED_ENTRIES` entries is refused with the API's error
#: for each entry.
MAX_LISTED_ENTRIES = 100_000
#: Maximum number of entries in a refused request to which a broker still responds with an error for
#: each entry. If the request has more entries, the broker closes the connection.
MAX_REFUSED_ENTRIES = 250_000
#: Maximum size of a response that this process accepts. A follower's fetch asks for at most 10 MiB
#: of records, but one larger batch may exceed that size.
MAX_RESPONSE_BYTES = 256 * MIB
#: Size of a connection's first receive buffer, which grows with the bytes that really arrive.
RECEIVE_BUFFER_BYTES = 256 * KIB
#: Total size of the receive buffers above 64 KiB that a process keeps for reuse.
RECEIVE_POOL_BYTES = 16 * MIB
#: Total size of the buffers for reads from the page cache that a log directory keeps for reuse. The
#: kept buffers suffice for six readers of 1 MiB each and their pending responses; reads for slow
#: readers allocate new buffers.
READ_POOL_BYTES = 16 * MIB
#: `max.connections`. Each connection costs a file descriptor and a receive buffer.
MAX_CONNECTIONS = 4096
#: Number of requests of one connection without a response, above which the broker stops reading
#: from the connection. Kafka stops reading after one request.
MAX_IN_FLIGHT_PER_CONNECTION = 256
#: Time for which a broker without a current state of the cluster holds a request back before the
#: broker closes the connection. `MAX_REQUEST_HOLD_MS` is below clients' request timeouts, so that
#: clients try another broker in time.
MAX_REQUEST_HOLD_MS = 10_000
#: Queued response bytes of one connection, above which the broker reads no further request from it.
#: A client that reads slowly thus delays only itself.
MAX_SEND_QUEUE_BYTES = 16 * MIB
#: Maximum number of Metadata and FindCoordinator responses that may wait for the election of
#: leaders, about 1 KiB each. While `MAX_HELD_ANSWERS` responses wait, the broker sends further
#: responses at once, without leaders.
MAX_HELD_ANSWERS = 1_000
#: Maximum number of partitions in all Metadata and FindCoordinator responses that wait for the
#: election of leaders. The loop may make all the waiting responses in one turn, which takes some 5
#: µs for each partition.
MAX_HELD_PARTITIONS = 20_000
#: `queued.max.response.bytes`: limit on the unread response bytes of all clients' connections. The
#: connections of brokers have a second budget of the same size. A fetch is granted at most 16 MiB
#: of the budget, so that many readers can share it. A broker with hundreds of clients that read
#: nothing stays below 300 MB.
QUEUED_RESPONSE_BYTES = 128 * MIB
#: `max.incremental.fetch.session.cache.slots`, with Kafka's default.
MAX_FETCH_SESSIONS = 1000
#: Maximum number of partitions in all fetch sessions together, about 400 bytes each.
MAX_FETCH_SESSION_PARTITIONS = 200_000
#: Maximum number of bytes that the check of one batch may decompress on the loop, which takes a few
#: milliseconds. A thread checks a batch that decompresses to more than
#: `MAX_DECOMPRESSED_ON_LOOP_BYTES`.
MAX_DECOMPRESSED_ON_LOOP_BYTES = 2 * MIB
#: Maximum size, in decompressed bytes, of a burst of batches that the loop checks; the check of
#: that many bytes takes about 10 ms. The usual batches of clients have at most 1 MB of records. A
#: thread checks batches of usual size only if many arrive together.
LOOP_CHECK_BURST_BYTES = 4 * MIB
#: Maximum long-term rate of batch checks on the loop, in decompressed bytes per ms; at this rate
#: the checks take about a third of the loop's time.
LOOP_CHECK_BYTES_PER_MS = 128 * KIB
#: Cost up to which the loop checks an uncompressed batch even if the loop's budget for checks is
#: used up, because passing the batch to a thread would cost more. The cost of a check is measured
#: in decompressed bytes (`records.checking.RECORD_EFFORT_BYTES` for each record).
LOOP_CHECK_FREE_BYTES = 64 * KIB
#: Size up to which a batch is recompressed on the loop (compression.type); gzip takes 2 ms for a
#: batch of that size. The log directory's thread recompresses batches above
#: `MAX_RECOMPRESSED_ON_LOOP_BYTES`.
MAX_RECOMPRESSED_ON_LOOP_BYTES = 64 * KIB
#: `max.decompressed.message.bytes`: maximum decompressed size of one batch; the size in the batch's
#: header is not trusted.
MAX_DECOMPRESSED_BYTES = 100 * MIB
#: Maximum number of invalid records that one Produce response names, each by its index and with a
#: reason, about 100 bytes each (KIP-467). librdkafka puts at most 10,000 records into a batch
#: (`batch.num.messages`).
MAX_RECORD_ERRORS = 10_000
#: `message.max.bytes`, with Kafka's default: 1 MiB and the log overhead of a batch (offset and
#: length).
MESSAGE_MAX_BYTES = MIB + 12
#: Maximum length of a topic name (rule V24).
MAX_TOPIC_NAME_CHARS = 249
#: Maximum number of partitions of one CreateTopics or AlterPartition request. The limit bounds the
#: time of one decision of the controller. An AlterPartition request may name as many partitions as
#: its sender hosts, even above `MAX_PARTITIONS_PER_REQUEST`.
MAX_PARTITIONS_PER_REQUEST = 10_000
#: Maximum number of preferred replicas that one decision elects; a longer decision would delay
#: elections of partitions without a leader.
MAX_PREFERRED_ELECTIONS_PER_DECISION = 500
#: Maximum number of preferred replicas that one step of the automatic leader rebalance elects; the
#: next step follows a second later. After each election, clients refresh metadata and reconnect.
MAX_AUTOMATIC_ELECTIONS_PER_STEP = 200
#: Maximum number of partitions whose leadership one decision transfers away from a broker in
#: controlled shutdown. The controller sends the commands of one decision while it writes the states
#: of the next decision.
MAX_HAND_OVERS_PER_DECISION = 500
#: Maximum number of partition states of deleted topics that the controller queues for a broker that
#: does not respond, about 300 bytes each. If more than `MAX_SUPERSEDED_STATES` states are queued,
#: the controller replaces the broker's queue by the full state.
MAX_SUPERSEDED_STATES = 10_000
#: Maximum number of logs whose ends one GetReplicaLogInfo response reports, as in Kafka.
MAX_LOG_ENDS_PER_REQUEST = 1_000
#: Maximum number of partitions in one DescribeReplicas response, about 200 bytes for each replica.
#: `MAX_DESCRIBED_PARTITIONS` equals Kafka's default for the partitions of a DescribeTopicPartitions
#: response.
MAX_DESCRIBED_PARTITIONS = 2_000
#: Maximum number of events queued for `__cluster_events`, about 600 bytes each. The events of a
#: failover of 10,000 partitions fit into the queue; events beyond the limit are dropped and
#: counted.
MAX_CLUSTER_EVENTS_QUEUED = 20_000
#: Maximum number of new leaderships for which a broker measures the time until clients have
#: recovered, about 700 bytes each. If there are more new leaderships, the broker measures only an
#: evenly spread sample of them.
MAX_TAKEOVERS_WATCHED = 1_000
#: Maximum number of log directories that clients chose for replicas that the broker does not host
#: yet, about 200 bytes each. Above `MAX_PREFERRED_LOG_DIRS` choices, the broker forgets the oldest
#: choices and chooses the directories of their replicas itself.
MAX_PREFERRED_LOG_DIRS = 100_000
#: Maximum number of buffers of one writev or pwritev (IOV_MAX of Linux).
MAX_IOVECS = 1024
#: Maximum number of producers remembered per partition, about 300 bytes each (KIP-854 limits only
#: the time for which they are remembered).
MAX_PRODUCERS_PER_PARTITION = 100_000
#: Maximum number of producers of one partition that are expected to resend refused batches, about
#: 250 bytes each.
MAX_REFUSED_PRODUCERS_PER_PARTITION = 10_000
#: Maximum number of partitions that the broker does not host yet and whose refused batches it
#: remembers for some seconds.
MAX_PARTITIONS_WITH_EARLY_BATCHES = 1_000
#: How long a broker expects a producer to resend a batch that was refused with a retriable error.
#: Clients resend a refused batch within a second or two. A producer that has not resent a refused
#: batch within `REFUSED_BATCH_AWAITED_MS` has given up the batch and the batches in flight behind
#: it.
REFUSED_BATCH_AWAITED_MS = 30_000
#: Time for which a leader refuses the batches after a refused batch that another leader may have
#: acknowledged. The producer does not resend an acknowledged batch, so the leader must accept later
#: batches again. Batches that were in flight with the refused batch arrive within this time.
STORED_BATCH_AWAITED_MS = 3_000
#: Time for which a new leader waits for a producer's batches that the former leader refused, if
#: later batches of the producer arrive first. Clients resend refused batches within a second or
#: two.
SKIPPED_BATCHES_AWAITED_MS = 10_000
#: Number of batches that a broker remembers per producer. Kafka's producers have 5 batches in
#: flight, so each of a producer's last 5 batches may be resent.
PRODUCER_BATCHES_REMEMBERED = 5
#: Number of producer ids in one block (KIP-730).
PRODUCER_ID_BLOCK_SIZE = 1000
#: Maximum size of one node of the metadata store: ZooKeeper's default limit (jute.maxbuffer) less
#: overhead.
MAX_NODE_BYTES = 1_000_000
#: Maximum size of a new topic's settings; one transaction of limited size writes the settings and
#: the replica assignment.
MAX_CREATED_CONFIG_BYTES = 32 * KIB
#: Maximum number of operations in one store transaction. 10,000 writes were fastest (0.065 s) in
#: transactions of 500 to 1,000 operations.
MAX_TRANSACTION_OPS = 1000
#: Maximum size of one store transaction. ZooKeeper reads at most 1,048,575 bytes of a request
#: (jute.maxbuffer).
MAX_TRANSACTION_BYTES = 1_040_000
#: Maximum number of groups that one partition of `__consumer_offsets` coordinates, about 2 KiB
#: each.
MAX_GROUPS_PER_PARTITION = 20_000
#: Maximum number of members of all groups that one partition of `__consumer_offsets` coordinates,
#: including member ids that have not joined: about 1 KiB each, in addition to the metadata of the
#: member's protocols.
MAX_GROUP_MEMBERS_PER_PARTITION = 50_000
#: Maximum number of partitions whose committed offset one group keeps, about 300 bytes each; few
#: clusters have so many partitions.
MAX_OFFSETS_PER_GROUP = 200_000
#: Maximum length of a group id, which records and responses repeat. Kafka bounds ids only by the
#: 32,767 bytes of a string.
MAX_GROUP_ID_CHARS = 1000
#: Maximum length of a group instance id.
MAX_INSTANCE_ID_CHARS = 249
#: Maximum length of the client id within a member id; a longer client id is truncated.
MAX_CLIENT_ID_CHARS_IN_MEMBER_ID = 249
#: Maximum number of protocols of a group member. The coordinator compares each protocol with the
#: protocols of all other members.
MAX_GROUP_PROTOCOLS = 100
#: Maximum size of the metadata of all protocols of one group member. The group's record holds only
#: the metadata of the chosen protocol.
MAX_MEMBER_METADATA_BYTES = MIB
#: Maximum size of the assignments of one group generation, which are one record and must fit
#: `message.max.bytes`.
MAX_GROUP_ASSIGNMENT_BYTES = MIB
#: Maximum length of a transactional id.
MAX_TRANSACTIONAL_ID_CHARS = 1000
#: Maximum number of transactional ids of one partition of `__transaction_state`, about 1 KiB each
#: (T83).
MAX_TRANSACTIONAL_IDS_PER_PARTITION = 100_000
#: Maximum number of partitions of one transaction, which are in one record (T83).
MAX_PARTITIONS_PER_TRANSACTION = 10_000
#: Maximum number of tombstones in one append; so many tombstones fit `message.max.bytes` even with
#: the longest group id.
MAX_TOMBSTONES_PER_APPEND = 200

#: Maximum number of topics with counters of their own in the metrics, about 3 KiB each; further
#: topics share counters.
MAX_METERED_TOPICS = 2_000
#: Maximum number of replicas with series of their own in the metrics. A scrape of 20,000 replicas
#: has 400,000 lines.
MAX_METERED_PARTITIONS = 20_000
#: Maximum number of groups with series of their own in the metrics; further groups are only
#: counted.
MAX_METERED_GROUPS = 10_000
#: Maximum number of committed offsets with series of their own in the metrics; further offsets are
#: part of their topic's sum.
MAX_METERED_GROUP_OFFSETS = 20_000
