import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** Apache's Java client, asked by lines of JSON: see worker.py. */
public class Worker {
    static final ObjectMapper JSON = new ObjectMapper();
    static final int WINDOW = 200;
    static final Duration PATIENCE = Duration.ofSeconds(60);

    String bootstrap;
    Admin admin;
    final List<Member> members = new ArrayList<>();
    final List<Writer> writers = new ArrayList<>();

    public static void main(String[] words) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // what the libraries print is no answer
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Worker worker = new Worker();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer = new HashMap<>();
            try {
                answer.put("ok", worker.answer(JSON.readTree(line)));
            } catch (Throwable error) {
                boolean wrapped = error instanceof ExecutionException && error.getCause() != null;
                error.printStackTrace();
                answer.put("error", (wrapped ? error.getCause() : error).toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
        System.exit(0);
    }

    Object answer(JsonNode asked) throws Exception {
        String topic = asked.path("topic").asText();
        String group = asked.path("group").asText();
        TopicPartition tp = new TopicPartition(topic, asked.path("partition").asInt());
        switch (asked.get("op").asText()) {
            case "open": return open(asked.get("bootstrap").asText());
            case "write": return write(tp, asked.get("codec").asText(), asked.get("records"));
            case "read": return read(tp, asked);
            case "offset": return offset(tp, asked.get("at"));
            case "writer_start":
                writers.add(new Writer(tp));
                return writers.size() - 1;
            case "writer_stop": return writers.get(asked.get("writer").asInt()).end();
            case "init_transactions":
                Map<String, Object> wantedId = Map.of("transactional.id", asked.get("id").asText(),
                    "max.block.ms", "60000");
                try (KafkaProducer<byte[], byte[]> transactional = producer(wantedId)) {
                    transactional.initTransactions();
                }
                return null;
            case "join":
                JsonNode instance = asked.get("instance");
                members.add(new Member(group, topic, asked.get("cooperative").asBoolean(),
                    instance.isNull() ? null : instance.asText()));
                return members.size() - 1;
            case "member_state": return members.get(asked.get("member").asInt()).state();
            case "member_commit": return members.get(asked.get("member").asInt()).commit();
            case "member_close": return members.get(asked.get("member").asInt()).end();
            case "create_topic":
                NewTopic wanted = new NewTopic(topic, asked.get("partitions").asInt(),
                    (short) asked.get("replicas").asInt()).configs(texts(asked.get("configs")));
                return done(admin.createTopics(List.of(wanted)).all());
            case "delete_topic": return done(admin.deleteTopics(List.of(topic)).all());
            case "list_topics": return admin.listTopics().names().get();
            case "describe_topic": return describeTopic(topic);
            case "create_partitions":
                return done(admin.createPartitions(
                    Map.of(topic, NewPartitions.increaseTo(asked.get("total").asInt()))).all());
            case "describe_configs": return describeConfigs(topic);
            case "alter_configs": return alterConfigs(topic, texts(asked.get("configs")));
            case "delete_records":
                return admin.deleteRecords(
                    Map.of(tp, RecordsToDelete.beforeOffset(asked.get("before").asLong())))
                    .lowWatermarks().get(tp).get().lowWatermark();
            case "describe_cluster":
                List<Integer> brokers = new ArrayList<>();
                for (Node node : admin.describeCluster().nodes().get()) brokers.add(node.id());
                return Map.of("brokers", brokers,
                    "controller", admin.describeCluster().controller().get().id());
            case "elect_preferred_leader":
                // Of its own, as kafka-leader-election has it: an older one may know a controller
                // that is none any more, and does not look for another on NOT_CONTROLLER.
                try (Admin fresh = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
                    return done(fresh.electLeaders(ElectionType.PREFERRED, Set.of(tp)).all());
                }
            case "log_dir_sizes": return logDirSizes(asked.get("broker").asInt(), topic);
            case "list_groups":
                List<String> names = new ArrayList<>();
                admin.listConsumerGroups().all().get().forEach(each -> names.add(each.groupId()));
                return names;
            case "describe_group": return describeGroup(group);
            case "group_offsets":
                Map<String, Long> offsets = new TreeMap<>();
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
                    .forEach((each, at) -> offsets.put("" + each.partition(), at.offset()));
                return offsets;
            case "set_group_offset":
                return done(admin.alterConsumerGroupOffsets(group,
                    Map.of(tp, new OffsetAndMetadata(asked.get("offset").asLong()))).all());
            case "delete_group": return done(admin.deleteConsumerGroups(List.of(group)).all());
            default: throw new IllegalArgumentException("no operation " + asked.get("op"));
        }
    }

    Object open(String bootstrap) {
        this.bootstrap = bootstrap;
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        admin = Admin.create(settings);
        return AppInfoParser.getVersion();
    }

    static Object done(Future<?> future) throws Exception {
        future.get();
        return null;
    }

    static Map<String, String> texts(JsonNode told) {
        Map<String, String> found = new HashMap<>();
        told.fields().forEachRemaining(each -> found.put(each.getKey(), each.getValue().asText()));
        return found;
    }

    static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("acks", "all");
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", "100");
        return new KafkaConsumer<>(
            settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    Object write(TopicPartition tp, String codec, JsonNode records) throws Exception {
        Map<String, Object> settings = Map.of("compression.type", codec, "linger.ms", "50");
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode each : records) {
                JsonNode time = each.get("timestamp");
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(tp.topic(),
                    tp.partition(), time.isNull() ? null : (Long) time.asLong(),
                    bytes(each.get("key")), bytes(each.get("value")));
                for (JsonNode header : each.get("headers"))
                    record.headers().add(header.get(0).asText(), bytes(header.get(1)));
                sent.add(producer.send(record));
            }
            for (Future<RecordMetadata> each : sent) each.get();
        }
        return null;
    }

    Object read(TopicPartition tp, JsonNode asked) {
        List<Object> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            consumer.assign(List.of(tp));
            if (asked.has("timestamp"))
                consumer.seek(tp, consumer.offsetsForTimes(
                    Map.of(tp, asked.get("timestamp").asLong())).get(tp).offset());
            else
                consumer.seek(tp, asked.get("offset").asLong());
            long end = consumer.endOffsets(List.of(tp)).get(tp);
            while (consumer.position(tp) < end)
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofSeconds(1)))
                    found.add(told(each));
        }
        return found;
    }

    static Object told(ConsumerRecord<byte[], byte[]> record) {
        List<Object> headers = new ArrayList<>();
        for (Header each : record.headers()) {
            List<String> pair = new ArrayList<>();
            pair.add(each.key());
            pair.add(text(each.value()));
            headers.add(pair);
        }
        Map<String, Object> told = new HashMap<>();
        told.put("key", text(record.key()));
        told.put("value", text(record.value()));
        told.put("headers", headers);
        told.put("timestamp", record.timestamp());
        return told;
    }

    Object offset(TopicPartition tp, JsonNode at) throws Exception {
        OffsetSpec spec = at.isNumber() ? OffsetSpec.forTimestamp(at.asLong())
            : at.asText().equals("earliest") ? OffsetSpec.earliest() : OffsetSpec.latest();
        return admin.listOffsets(Map.of(tp, spec)).partitionResult(tp).get().offset();
    }

    Object describeTopic(String topic) throws Exception {
        List<Object> found = new ArrayList<>();
        for (TopicPartitionInfo each :
                admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions())
            found.add(Map.of("partition", each.partition(), "leader", each.leader().id(),
                "replicas", each.replicas().stream().map(Node::id).toList(),
                "isr", each.isr().stream().map(Node::id).toList()));
        return found;
    }

    Object describeConfigs(String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<String, String> found = new HashMap<>();
        for (ConfigEntry each :
                admin.describeConfigs(List.of(resource)).all().get().get(resource).entries())
            found.put(each.name(), each.value());
        return found;
    }

    Object alterConfigs(String topic, Map<String, String> configs) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        configs.forEach((name, value) ->
            changes.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        return done(admin.incrementalAlterConfigs(
            Map.of(new ConfigResource(ConfigResource.Type.TOPIC, topic), changes)).all());
    }

    Object logDirSizes(int broker, String topic) throws Exception {
        Map<String, Long> sizes = new TreeMap<>();
        admin.describeLogDirs(List.of(broker)).allDescriptions().get().get(broker).values()
            .forEach(directory -> directory.replicaInfos().forEach((tp, replica) -> {
                if (tp.topic().equals(topic)) sizes.put("" + tp.partition(), replica.size());
            }));
        return sizes;
    }

    Object describeGroup(String group) throws Exception {
        ConsumerGroupDescription found =
            admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        List<Object> described = new ArrayList<>();
        for (MemberDescription each : found.members())
            described.add(Map.of("client_id", each.clientId(), "partitions",
                each.assignment().topicPartitions().stream()
                    .map(TopicPartition::partition).toList()));
        return Map.of("state", found.state().toString(),
            "protocol", found.partitionAssignor(), "members", described);
    }

    /** An idempotent producer that sends 0, 1, 2, ... until it is told to stop. */
    class Writer extends Thread {
        final TopicPartition to;
        volatile boolean ended;
        volatile Throwable failure;
        volatile long sent;

        Writer(TopicPartition to) {
            this.to = to;
            start();
        }

        @Override
        public void run() {
            Map<String, Object> settings = Map.of("enable.idempotence", "true", "linger.ms", "2",
                "batch.size", "1000", "retry.backoff.ms", "20");
            try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
                List<Future<RecordMetadata>> waiting = new ArrayList<>();
                while (!ended) {
                    byte[] value = Long.toString(sent).getBytes(StandardCharsets.UTF_8);
                    waiting.add(producer.send(
                        new ProducerRecord<>(to.topic(), to.partition(), null, value)));
                    sent++;
                    if (waiting.size() >= WINDOW) {
                        for (Future<RecordMetadata> each : waiting.subList(0, WINDOW / 2)) each.get();
                        waiting.subList(0, WINDOW / 2).clear();
                    }
                }
                for (Future<RecordMetadata> each : waiting) each.get();
            } catch (Throwable error) {
                failure = error;
            }
        }

        Object end() throws Exception {
            ended = true;
            join(PATIENCE.toMillis());
            if (failure != null) throw new ExecutionException(failure);
            if (isAlive()) throw new IllegalStateException("not everything is acknowledged");
            return sent;
        }
    }

    /** A member of a group; its thread alone touches the consumer. */
    class Member extends Thread implements ConsumerRebalanceListener {
        final KafkaConsumer<byte[], byte[]> consumer;
        final String topic;
        final boolean cooperative;
        final ConcurrentLinkedQueue<FutureTask<Object>> calls = new ConcurrentLinkedQueue<>();
        final Set<Integer> assigned = new TreeSet<>();
        final List<Object> received = new ArrayList<>();
        final List<Object> revoked = new ArrayList<>();
        int rebalances;
        volatile boolean ended;
        volatile Throwable failure;

        Member(String group, String topic, boolean cooperative, String instance) {
            Map<String, Object> settings = new HashMap<>();
            settings.put("group.id", group);
            settings.put("auto.offset.reset", "earliest");
            settings.put("heartbeat.interval.ms", "200");
            settings.put("partition.assignment.strategy",
                "org.apache.kafka.clients.consumer."
                    + (cooperative ? "CooperativeStickyAssignor" : "RangeAssignor"));
            if (instance != null) settings.put("group.instance.id", instance);
            consumer = consumer(settings);
            this.topic = topic;
            this.cooperative = cooperative;
            start();
        }

        @Override
        public void run() {
            try {
                consumer.subscribe(List.of(topic), this);
                while (!ended) {
                    for (FutureTask<Object> call = calls.poll(); call != null; call = calls.poll())
                        call.run();
                    for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(100)))
                        synchronized (this) {
                            received.add(List.of(each.partition(), each.offset()));
                        }
                }
                consumer.close();
            } catch (Throwable error) {
                failure = error;
            }
        }

        @Override
        public synchronized void onPartitionsAssigned(Collection<TopicPartition> given) {
            if (!cooperative) assigned.clear();
            given.forEach(each -> assigned.add(each.partition()));
            rebalances++;
        }

        @Override
        public synchronized void onPartitionsRevoked(Collection<TopicPartition> taken) {
            List<Integer> numbers = taken.stream().map(TopicPartition::partition).toList();
            assigned.removeAll(numbers);
            if (!numbers.isEmpty()) revoked.add(numbers);
        }

        synchronized Object state() throws Exception {
            if (failure != null) throw new ExecutionException(failure);
            return Map.of("assigned", new ArrayList<>(assigned), "received",
                new ArrayList<>(received), "revoked", new ArrayList<>(revoked),
                "rebalances", rebalances);
        }

        Object commit() throws Exception {
            FutureTask<Object> call = new FutureTask<>(() -> {
                consumer.commitSync();
                return null;
            });
            calls.add(call);
            return call.get();
        }

        Object end() throws Exception {
            ended = true;
            join(PATIENCE.toMillis());
            if (failure != null) throw new ExecutionException(failure);
            return null;
        }
    }
}
