"""A limit on everything that a peer can make grow, each with its reason (DESIGN.md, rule 10).

Values that an operator may change have a configuration key; only their defaults are here.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

#: `socket.request.max.bytes`: Kafka's default; one request is one frame held in memory.
MAX_REQUEST_BYTES = 100 * MIB
#: `queued.max.request.bytes`: requests of all connections that are being received; Kafka's default
#: is no limit. Two of the largest requests fit, or the 5 in flight of each of 50 producers of 1 MiB
#: batches. A machine with 4 GB still has room for several brokers.
QUEUED_REQUEST_BYTES = 256 * MIB
#: Requests that are lists of names or partitions, above which their entries are counted. Below, the
#: entries that fit are as few as are allowed above.
LISTING_REQUEST_BYTES = MIB
#: Entries that such a request may list, all arrays together: each costs the loop microseconds, so
#: more of them could hold the loop for longer than a session lasts. More are refused, each of them
#: with the API's error.
MAX_LISTED_ENTRIES = 100_000
#: Entries that a broker reads to refuse them one by one; with more it closes the connection.
MAX_REFUSED_ENTRIES = 250_000
#: A response to a request of this process: its own fetches ask for at most 10 MiB, with one batch
#: above.
MAX_RESPONSE_BYTES = 256 * MIB
#: First receive buffer of a connection; grows with the bytes that really arrive.
RECEIVE_BUFFER_BYTES = 256 * KIB
#: Receive buffers above 64 KiB that all connections of a process keep for reuse.
RECEIVE_POOL_BYTES = 16 * MIB
#: Buffers of reads from the page cache that a log directory keeps for reuse. With six readers at 1
#: MiB each and the responses under way all are reused; a slow reader makes new ones.
READ_POOL_BYTES = 16 * MIB
#: `max.connections`: a descriptor and a receive buffer each.
MAX_CONNECTIONS = 4096
#: Requests of one connection that wait for a response; reading stops above (Kafka mutes at one).
MAX_IN_FLIGHT_PER_CONNECTION = 256
#: How long a request may wait to begin while its broker cannot know the cluster's state. It is
#: below the request timeouts of clients, which then find another broker.
MAX_REQUEST_HOLD_MS = 10_000
#: Response bytes queued on one connection; reading stops above, so that a slow reader costs itself.
MAX_SEND_QUEUE_BYTES = 16 * MIB
#: Metadata and FindCoordinator responses that wait for next leaders: about 1 KiB each. Above, they
#: leave at once.
MAX_HELD_ANSWERS = 1_000
#: Partitions that these responses name: all of them may be made in one turn of the loop, at some
#: 5 microseconds for each partition.
MAX_HELD_PARTITIONS = 20_000
#: `queued.max.response.bytes`: responses over all connections of clients that were not read yet,
#: and as much for brokers. With the largest grant, 16 MiB, many readers share it, and a broker with
#: hundreds of readers that read nothing stays below 300 MB.
QUEUED_RESPONSE_BYTES = 128 * MIB
#: `max.incremental.fetch.session.cache.slots`: Kafka's default.
MAX_FETCH_SESSIONS = 1000
#: Partitions over all fetch sessions: about 400 bytes each.
MAX_FETCH_SESSION_PARTITIONS = 200_000
#: Bytes that the check of one batch may decompress on the loop: a few milliseconds. A thread checks
#: larger batches.
MAX_DECOMPRESSED_ON_LOOP_BYTES = 2 * MIB
#: Cost of batch checks that the loop may pay at once, in bytes of decompression: 10 ms. The usual
#: batches of clients have at most 1 MB inside, and leave the loop only where many arrive together.
LOOP_CHECK_BURST_BYTES = 4 * MIB
#: The long-term cost of batch checks on the loop: about a third of its time.
LOOP_CHECK_BYTES_PER_MS = 128 * KIB
#: A cheaper batch without compression never leaves the loop: a thread costs more.
LOOP_CHECK_FREE_BYTES = 64 * KIB
#: Bytes of one batch that are recompressed on the loop (compression.type): gzip takes 2 ms for
#: them. The directory's thread compresses a larger batch.
MAX_RECOMPRESSED_ON_LOOP_BYTES = 64 * KIB
#: `max.decompressed.message.bytes`: decompressed size of one batch, whatever it claims.
MAX_DECOMPRESSED_BYTES = 100 * MIB
#: Bad records that one Produce response names by index, each with its reason (KIP-467): as many as
#: librdkafka puts into a batch (`batch.num.messages`), about 100 bytes each.
MAX_RECORD_ERRORS = 10_000
#: `message.max.bytes`: Kafka's default: 1 MiB and the log overhead of a batch (offset and length).
MESSAGE_MAX_BYTES = MIB + 12
#: Longest topic name (rule V24).
MAX_TOPIC_NAME_CHARS = 249
#: Partitions of one CreateTopics request, and of an AlterPartition request whose sender hosts
#: fewer: bounds one decision of the controller.
MAX_PARTITIONS_PER_REQUEST = 10_000
#: Preferred replicas that get leadership back in one decision: other partitions need their leaders
#: meanwhile.
MAX_PREFERRED_ELECTIONS_PER_DECISION = 500
#: Leaderships that one automatic step returns, a second before the next step: clients of each ask
#: for metadata and reconnect.
MAX_AUTOMATIC_ELECTIONS_PER_STEP = 200
#: Partitions of a leaving broker whose leadership one decision transfers: the controller sends its
#: commands while it writes the next states.
MAX_HAND_OVERS_PER_DECISION = 500
#: States of deleted topics' partitions that may wait for a broker that does not respond, above the
#: states of all existing partitions: about 300 bytes each. Above this the controller resends the
#: full state to the broker.
MAX_SUPERSEDED_STATES = 10_000
#: Logs of which one GetReplicaLogInfo reports the ends, as in Kafka.
MAX_LOG_ENDS_PER_REQUEST = 1_000
#: Partitions that one DescribeReplicas describes, about 200 bytes for each replica; as many as
#: DescribeTopicPartitions by default.
MAX_DESCRIBED_PARTITIONS = 2_000
#: Events that wait to be written to `__cluster_events`: about 600 bytes each. A failover of 10,000
#: partitions fits; events without room are counted.
MAX_CLUSTER_EVENTS_QUEUED = 20_000
#: New leaderships of one broker whose followers and first records are timed at once; above, an even
#: sample: about 700 bytes each.
MAX_TAKEOVERS_WATCHED = 1_000
#: Log directories that were asked for before their replicas are here, about 200 bytes each; the
#: longest known ones are forgotten, and their replicas are placed as any.
MAX_PREFERRED_LOG_DIRS = 100_000
#: Buffers of one writev/pwritev (IOV_MAX of Linux).
MAX_IOVECS = 1024
#: Producers remembered per partition: about 300 bytes each (KIP-854 bounds them by time only).
MAX_PRODUCERS_PER_PARTITION = 100_000
#: Producers of one partition whose refused batches are expected again: about 250 bytes each.
MAX_REFUSED_PRODUCERS_PER_PARTITION = 10_000
#: Partitions without a replica here whose refused batches are kept: few, each for seconds.
MAX_PARTITIONS_WITH_EARLY_BATCHES = 1_000
#: How long a broker expects a batch again that it refused for the moment: clients resend it within
#: a second or two. Batches behind it were in flight with it; after this time the producer has given
#: it up.
REFUSED_BATCH_AWAITED_MS = 30_000
#: How long a stored batch that was refused holds up those behind it, where another leader may have
#: acknowledged it: those that were in flight with it come within this time.
STORED_BATCH_AWAITED_MS = 3_000
#: How long a new leader expects batches that the former leader refused, where a later batch of the
#: same producer comes first: clients resend them within a second or two.
SKIPPED_BATCHES_AWAITED_MS = 10_000
#: Batches remembered per producer (Kafka: 5 in flight, so 5 sequences can be repeated).
PRODUCER_BATCHES_REMEMBERED = 5
#: Producer ids of one block (KIP-730).
PRODUCER_ID_BLOCK_SIZE = 1000
#: One node of the metadata store: ZooKeeper's default limit (jute.maxbuffer), less its overhead.
MAX_NODE_BYTES = 1_000_000
#: Settings of a topic that is created: they and its assignment are one transaction.
MAX_CREATED_CONFIG_BYTES = 32 * KIB
#: Operations of one store transaction: 0.065 s for 10,000 writes was best at 500 to 1,000.
MAX_TRANSACTION_OPS = 1000
#: Bytes of one store transaction: ZooKeeper reads at most 1,048,575 of a request (jute.maxbuffer).
MAX_TRANSACTION_BYTES = 1_040_000
#: Groups that one partition of `__consumer_offsets` coordinates: about 2 KiB each.
MAX_GROUPS_PER_PARTITION = 20_000
#: Members of the groups of one such partition, assigned ids included: about 1 KiB and metadata.
MAX_GROUP_MEMBERS_PER_PARTITION = 50_000
#: Partitions whose offset one group keeps: about 300 bytes each; more than a cluster has.
MAX_OFFSETS_PER_GROUP = 200_000
#: Longest group id, group instance id, and client id within a member id: each stands in records and
#: in every response; Kafka has no bound but the 32,767 bytes of a string.
MAX_GROUP_ID_CHARS = 1000
MAX_INSTANCE_ID_CHARS = 249
MAX_CLIENT_ID_CHARS_IN_MEMBER_ID = 249
#: Protocols of one member of a group: each is compared with those of all others.
MAX_GROUP_PROTOCOLS = 100
#: Metadata of one member, all protocols together: one of them stands in the group's record.
MAX_MEMBER_METADATA_BYTES = MIB
#: Assignments of one generation: they are one record, which must fit `message.max.bytes`.
MAX_GROUP_ASSIGNMENT_BYTES = MIB
#: Tombstones of one append: with the longest group id they still fit `message.max.bytes`.
MAX_TOMBSTONES_PER_APPEND = 200
