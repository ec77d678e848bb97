import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Apache's Java client with its defaults: see bench/failover_clients.py. */
public class Default {
    static final long PACE_NS = 1_000_000 * Long.parseLong(System.getenv("TIDELOG_BENCH_PACE_MS"));

    public static void main(String[] words) {
        if (words[0].equals("produce")) {
            produce(words[1], words[2], Integer.parseInt(words[3]));
        } else {
            consume(words[1], words[2], words[3]);
        }
    }

    static void produce(String bootstrap, String topic, int partitions) {
        var producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", bootstrap),
            new ByteArraySerializer(),
            new ByteArraySerializer());
        long due = System.nanoTime();
        while (true) {
            for (int partition = 0; partition < partitions; partition++) {
                var record = new ProducerRecord<byte[], byte[]>(
                    topic, partition, null, "value".getBytes());
                producer.send(record, (metadata, error) -> {
                    if (error == null) {
                        say(metadata.partition());
                    }
                });
            }
            due = Math.max(due + PACE_NS, System.nanoTime());
            LockSupport.parkNanos(Math.max(0, due - System.nanoTime()));
        }
    }

    static void consume(String bootstrap, String topic, String group) {
        var consumer = new KafkaConsumer<>(
            Map.of("bootstrap.servers", bootstrap, "group.id", group),
            new ByteArrayDeserializer(),
            new ByteArrayDeserializer());
        consumer.subscribe(List.of(topic));
        while (true) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                say(record.partition());
            }
        }
    }

    static void say(int partition) {
        Instant now = Instant.now();
        long us = now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
        synchronized (System.out) {
            System.out.println(partition + " " + us);
        }
    }
}
