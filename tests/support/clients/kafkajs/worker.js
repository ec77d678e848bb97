'use strict'
// kafkajs, asked by lines of JSON: see matrix/worker.py. Packages come from NODE_PATH.

const readline = require('readline')
const {
  AssignerProtocol,
  CompressionCodecs,
  CompressionTypes,
  ConfigResourceTypes,
  Kafka,
  logLevel,
} = require('kafkajs')
const kafkajsVersion = require('kafkajs/package.json').version
const SnappyCodec = require('kafkajs-snappy')
const lz4 = require('lz4js')
const xxh32 = require('lz4js/xxh32')
const zstd = require('@bokuweb/zstd-wasm')
const fzstd = require('fzstd')

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
// lz4js marks blocks as linked, which no client of Kafka's reads and brokers refuse. The blocks of up
// to 4 MiB that it writes do not refer to earlier ones: the mark and its checksum are put right.
const LZ4_VERSION_AND_INDEPENDENT_BLOCKS = 0x60

function compressedLz4(buffer) {
  const frame = Buffer.from(lz4.compress(buffer))
  frame[4] = LZ4_VERSION_AND_INDEPENDENT_BLOCKS
  frame[6] = (xxh32.hash(0, frame, 4, 2) >> 8) & 0xff
  return frame
}

CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => compressedLz4(encoder.buffer),
  decompress: async data => Buffer.from(lz4.decompress(data)),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => {
    await zstd.init()
    return Buffer.from(zstd.compress(encoder.buffer))
  },
  // The other package cannot read frames that do not tell their size, as streams write them.
  decompress: async data => Buffer.from(fzstd.decompress(data)),
})
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

const BATCH = 20
const RETRY = { initialRetryTime: 50, maxRetryTime: 1000, retries: 50 }
let kafka
let admin
let throwaways = 0
const members = []
const writers = []
const producers = []

const bytes = text => (text === null ? null : Buffer.from(text, 'base64'))
const text = data => (data === null || data === undefined ? null : data.toString('base64'))

/** kafkajs gives headers as an object: a name twice is a list. */
function headersFrom(pairs) {
  const headers = {}
  for (const [name, value] of pairs) {
    if (name in headers) headers[name] = [].concat(headers[name], bytes(value))
    else headers[name] = bytes(value)
  }
  return headers
}

function headersTold(headers) {
  return Object.entries(headers || {}).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map(one => [name, text(one)])
  )
}

async function write({ topic, partition, codec, records }) {
  const producer = kafka.producer()
  await producer.connect()
  try {
    await producer.send({
      topic,
      acks: -1,
      compression: CODECS[codec],
      messages: records.map(record => ({
        partition,
        key: bytes(record.key),
        value: bytes(record.value),
        headers: headersFrom(record.headers),
        timestamp: record.timestamp === null ? undefined : String(record.timestamp),
      })),
    })
  } finally {
    await producer.disconnect()
  }
  return null
}

async function watermarks(topic, partition) {
  const found = await admin.fetchTopicOffsets(topic)
  return found.find(each => each.partition === partition)
}

async function offsetByTime(topic, partition, timestamp) {
  const found = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)
  return Number(found.find(each => each.partition === partition).offset)
}

/** kafkajs assigns nothing by hand: a group of one member, which seeks. */
async function read({ topic, partition, offset, timestamp }) {
  const start = timestamp === undefined ? offset : await offsetByTime(topic, partition, timestamp)
  const end = Number((await watermarks(topic, partition)).high)
  const found = []
  if (start >= end) return found
  throwaways += 1
  const groupId = `kafkajs-reader-${process.pid}-${throwaways}`
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 100 })
  await consumer.connect()
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
      consumer
        .run({
          autoCommit: false,
          eachMessage: async ({ partition: from, message }) => {
            const at = Number(message.offset)
            if (from !== partition || at < start || at >= end) return
            found.push({
              key: text(message.key),
              value: text(message.value),
              headers: headersTold(message.headers),
              timestamp: Number(message.timestamp),
            })
            if (at === end - 1) resolve()
          },
        })
        .then(() => consumer.seek({ topic, partition, offset: String(start) }), reject)
    })
  } finally {
    await consumer.disconnect()
  }
  return found
}

async function offset({ topic, partition, at }) {
  if (at === 'earliest') return Number((await watermarks(topic, partition)).low)
  if (at === 'latest') return Number((await watermarks(topic, partition)).high)
  return offsetByTime(topic, partition, at)
}

/** An idempotent producer that sends 0, 1, 2, ... until it is told to stop. */
class Writer {
  constructor(topic, partition) {
    this.ended = false
    this.running = this.run(topic, partition)
    this.running.catch(() => {}) // told by whoever stops it
  }

  async run(topic, partition) {
    const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, retry: RETRY })
    await producer.connect()
    let sent = 0
    try {
      while (!this.ended) {
        const messages = []
        for (let each = 0; each < BATCH; each += 1)
          messages.push({ partition, value: String(sent + each) })
        await producer.send({ topic, acks: -1, messages })
        sent += BATCH
      }
    } finally {
      await producer.disconnect()
    }
    return sent
  }

  async stop() {
    this.ended = true
    return this.running
  }
}

/** A producer that stays, so that what it knows of the cluster gets old; few retries. */
async function producerOpen() {
  const producer = kafka.producer({ retry: { initialRetryTime: 50, maxRetryTime: 200, retries: 4 } })
  await producer.connect()
  return producers.push(producer) - 1
}

/** Partition null: the producer chooses one by the key. Returns the partitions that were written. */
async function producerSend({ producer, topic, partition, key }) {
  const message = { value: 'x', key }
  if (partition !== null) message.partition = partition
  const sent = await producers[producer].send({ topic, acks: -1, messages: [message] })
  return sent.map(each => [each.partition, Number(each.baseOffset)])
}

async function producerClose({ producer }) {
  await producers[producer].disconnect()
  return null
}

/** A member of a group. */
class Member {
  constructor(group, topic) {
    this.topic = topic
    this.assigned = []
    this.received = []
    this.revoked = []
    this.rebalances = 0
    this.positions = {}
    this.failure = null
    this.consumer = kafka.consumer({
      groupId: group,
      heartbeatInterval: 200,
      // On a lost coordinator it comes back as a new member: the old one must not live long.
      sessionTimeout: 6000,
      rebalanceTimeout: 6000,
      maxWaitTimeInMs: 100,
      // Few: until they are used up it tries the coordinator that it knows, and no other.
      retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 4 },
    })
    const { GROUP_JOIN, REBALANCING, CRASH } = this.consumer.events
    this.consumer.on(GROUP_JOIN, event => {
      this.assigned = event.payload.memberAssignment[topic] || []
      this.rebalances += 1
    })
    this.consumer.on(REBALANCING, () => {
      if (this.assigned.length) this.revoked.push(this.assigned)
      this.assigned = []
    })
    this.consumer.on(CRASH, event => {
      this.assigned = []
      if (!event.payload.restart) this.failure = event.payload.error
    })
    this.starting = this.start().catch(error => {
      this.failure = error
    })
  }

  async start() {
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [this.topic], fromBeginning: true })
    await this.consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        this.received.push([partition, Number(message.offset)])
        this.positions[partition] = Number(message.offset) + 1
      },
    })
  }

  state() {
    if (this.failure) throw this.failure
    const { assigned, received, revoked, rebalances } = this
    return { assigned, received, revoked, rebalances }
  }

  async commit() {
    await this.consumer.commitOffsets(
      this.assigned
        .filter(partition => partition in this.positions)
        .map(partition => ({
          topic: this.topic,
          partition,
          offset: String(this.positions[partition]),
        }))
    )
    return null
  }

  async close() {
    await this.starting
    await this.consumer.disconnect()
    return null
  }
}

async function describeGroup(group) {
  const [found] = (await admin.describeGroups([group])).groups
  return {
    state: found.state,
    protocol: found.protocol,
    members: found.members.map(member => ({
      client_id: member.clientId,
      partitions: Object.values(
        AssignerProtocol.MemberAssignment.decode(member.memberAssignment).assignment
      ).flat(),
    })),
  }
}

async function describeConfigs(topic) {
  const found = await admin.describeConfigs({
    includeSynonyms: false,
    resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }],
  })
  return Object.fromEntries(
    found.resources[0].configEntries.map(each => [each.configName, each.configValue])
  )
}

const entries = configs => Object.entries(configs).map(([name, value]) => ({ name, value }))

const OPERATIONS = {
  async open({ bootstrap }) {
    kafka = new Kafka({
      clientId: 'kafkajs',
      brokers: bootstrap.split(','),
      logLevel: logLevel.ERROR,
      logCreator: () => entry => console.error(JSON.stringify(entry)),
    })
    admin = kafka.admin()
    await admin.connect()
    return kafkajsVersion
  },
  write,
  read,
  offset,
  writer_start: async ({ topic, partition }) => writers.push(new Writer(topic, partition)) - 1,
  writer_stop: ({ writer }) => writers[writer].stop(),
  async init_transactions({ id }) {
    const producer = kafka.producer({ transactionalId: id, idempotent: true, maxInFlightRequests: 1 })
    try {
      await producer.connect()
      await producer.transaction()
    } finally {
      await producer.disconnect()
    }
    return null
  },
  producer_open: producerOpen,
  producer_send: producerSend,
  producer_close: producerClose,
  join: async ({ group, topic }) => members.push(new Member(group, topic)) - 1,
  member_state: async ({ member }) => members[member].state(),
  member_commit: ({ member }) => members[member].commit(),
  member_close: ({ member }) => members[member].close(),
  async create_topic({ topic, partitions, replicas, configs }) {
    const made = await admin.createTopics({
      waitForLeaders: false,
      topics: [
        {
          topic,
          numPartitions: partitions,
          replicationFactor: replicas,
          configEntries: entries(configs),
        },
      ],
    })
    if (!made) throw new Error(`topic ${topic} exists`)
    return null
  },
  async delete_topic({ topic }) {
    await admin.deleteTopics({ topics: [topic] })
    return null
  },
  list_topics: () => admin.listTopics(),
  async describe_topic({ topic }) {
    const found = (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0]
    return found.partitions.map(each => ({
      partition: each.partitionId,
      leader: each.leader,
      replicas: each.replicas,
      isr: each.isr,
    }))
  },
  async create_partitions({ topic, total }) {
    await admin.createPartitions({ topicPartitions: [{ topic, count: total }] })
    return null
  },
  describe_configs: ({ topic }) => describeConfigs(topic),
  async alter_configs({ topic, configs }) {
    await admin.alterConfigs({
      validateOnly: false,
      resources: [
        { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: entries(configs) },
      ],
    })
    return null
  },
  async delete_records({ topic, partition, before }) {
    await watermarks(topic, partition) // it looks for the leader in what it knows already
    await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
    return Number((await watermarks(topic, partition)).low)
  },
  async describe_cluster() {
    const found = await admin.describeCluster()
    return { brokers: found.brokers.map(each => each.nodeId), controller: found.controller }
  },
  list_groups: async () => (await admin.listGroups()).groups.map(each => each.groupId),
  describe_group: ({ group }) => describeGroup(group),
  async group_offsets({ group, topic }) {
    const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
    return Object.fromEntries(
      found.partitions.map(each => [each.partition, Number(each.offset)])
    )
  },
  async set_group_offset({ group, topic, partition, offset: to }) {
    const partitions = [{ partition, offset: String(to) }]
    await admin.setOffsets({ groupId: group, topic, partitions })
    return null
  },
  async delete_group({ group }) {
    await admin.deleteGroups([group])
    return null
  },
}

/** The error and what it was made of: some tell of topics, groups and partitions one by one. */
function described(error) {
  const parts = [error.errors, error.groups, error.partitions].flatMap(list => list || [])
  const inner = [error.cause, ...parts.map(part => part.error || part)].filter(Boolean)
  return [error, ...inner].map(each => `${each.type || each.name}: ${each.message}`).join('; ')
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line)
    let answer
    try {
      answer = { ok: await OPERATIONS[asked.op](asked) }
    } catch (error) {
      console.error(error)
      answer = { error: described(error) }
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`)
  }
  process.exit(0)
}

main()
