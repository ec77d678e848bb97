/*
 * A Kafka client for measurements: librdkafka without a language on top.
 *
 * The library is the one inside the confluent-kafka wheel, loaded by path, so that nothing needs to
 * be installed; its few functions are declared here by hand (librdkafka's public, stable C API).
 *
 *   driver LIB produce BOOTSTRAP TOPIC PARTITIONS RECORD_BYTES TOTAL_BYTES ACKS [key=value ...]
 *   driver LIB latency BOOTSTRAP TOPIC PARTITIONS RECORD_BYTES SECONDS ACKS [key=value ...]
 *   driver LIB consume BOOTSTRAP TOPIC PARTITIONS TOTAL_BYTES [key=value ...]
 *
 * Prints one JSON object. Times are monotonic; latency is from the call to the delivery report.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { PRODUCER = 0, CONSUMER = 1 };
enum { OFFSET_BEGINNING = -2 };

/* The leading members of rd_kafka_message_t, in librdkafka's order. */
typedef struct {
    int err;
    void *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private_data;
} message;

static void *(*conf_new)(void);
static int (*conf_set)(void *, const char *, const char *, char *, size_t);
static void (*conf_set_dr)(void *, void (*)(void *, const message *, void *));
static void *(*client_new)(int, void *, char *, size_t);
static void *(*topic_new)(void *, const char *, void *);
static int (*produce)(void *, int32_t, int, void *, size_t, const void *, size_t, void *);
static int (*poll_client)(void *, int);
static int (*flush_client)(void *, int);
static void *(*queue_new)(void *);
static int (*consume_start)(void *, int32_t, int64_t, void *);
static ssize_t (*consume_batch)(void *, int, message **, size_t);
static void (*message_destroy)(message *);
static const char *(*err2str)(int);

static volatile long delivered, failed;
static int last_error;

static void on_delivery(void *client, const message *one, void *opaque) {
    (void)client;
    (void)opaque;
    if (one->err) {
        failed++;
        last_error = one->err;
    } else {
        delivered++;
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void die(const char *what, const char *why) {
    fprintf(stderr, "driver: %s: %s\n", what, why);
    exit(1);
}

static void *find(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) die(name, dlerror());
    return found;
}

static void load(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) die(path, dlerror());
    conf_new = find(library, "rd_kafka_conf_new");
    conf_set = find(library, "rd_kafka_conf_set");
    conf_set_dr = find(library, "rd_kafka_conf_set_dr_msg_cb");
    client_new = find(library, "rd_kafka_new");
    topic_new = find(library, "rd_kafka_topic_new");
    produce = find(library, "rd_kafka_produce");
    poll_client = find(library, "rd_kafka_poll");
    flush_client = find(library, "rd_kafka_flush");
    queue_new = find(library, "rd_kafka_queue_new");
    consume_start = find(library, "rd_kafka_consume_start_queue");
    consume_batch = find(library, "rd_kafka_consume_batch_queue");
    message_destroy = find(library, "rd_kafka_message_destroy");
    err2str = find(library, "rd_kafka_err2str");
}

static void set(void *conf, const char *key, const char *value) {
    char error[512];
    if (conf_set(conf, key, value, error, sizeof error)) die(key, error);
}

/* Hands one record over. A full queue is emptied here: records count until their delivery reports
 * are polled, and librdkafka's own blocking would wait for this very thread. */
static void send_record(void *client, void *topic, int partition, char *payload, size_t size) {
    while (produce(topic, partition, 0, payload, size, NULL, 0, NULL)) {
        if (errno != ENOBUFS) die("produce", strerror(errno));
        poll_client(client, 10);
    }
}

/* key=value arguments after the fixed ones. */
static void set_all(void *conf, char **arguments) {
    for (; *arguments; arguments++) {
        char *equals = strchr(*arguments, '=');
        if (!equals) die(*arguments, "key=value expected");
        *equals = 0;
        set(conf, *arguments, equals + 1);
    }
}

/* Bytes that do not compress and do not repeat within a record. */
static char *random_bytes(size_t size) {
    char *bytes = malloc(size);
    uint64_t state = 88172645463325252ull;
    for (size_t i = 0; i < size; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes[i] = (char)state;
    }
    return bytes;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void *open_producer(char **arguments, const char *acks, char **options) {
    void *conf = conf_new();
    char error[512];
    set(conf, "bootstrap.servers", arguments[0]);
    set(conf, "acks", acks);
    set_all(conf, options);
    conf_set_dr(conf, on_delivery);
    void *client = client_new(PRODUCER, conf, error, sizeof error);
    if (!client) die("producer", error);
    return client;
}

static void wait_for(void *client, long count) {
    while (delivered + failed < count) poll_client(client, 100);
    if (failed) die("delivery", err2str(last_error));
}

static void run_produce(char **arguments) {
    int partitions = atoi(arguments[2]);
    size_t record = strtoull(arguments[3], 0, 10), total = strtoull(arguments[4], 0, 10);
    void *client = open_producer(arguments, arguments[5], arguments + 6);
    void *topic = topic_new(client, arguments[1], NULL);
    char *payload = random_bytes(record);
    /* The first record of each partition opens connections and is not measured. */
    for (int p = 0; p < partitions; p++)
        send_record(client, topic, p, payload, record);
    wait_for(client, partitions);
    long count = total / record, warm = delivered;
    double begin = now(), cpu_begin = cpu();
    for (long i = 0; i < count; i++) {
        send_record(client, topic, (i / 64) % partitions, payload, record);
        if ((i & 1023) == 0) poll_client(client, 0);
    }
    wait_for(client, warm + count);
    double seconds = now() - begin;
    printf("{\"seconds\": %.6f, \"records\": %ld, \"bytes\": %zu, \"client_cpu_seconds\": %.6f}\n",
           seconds, count, count * record, cpu() - cpu_begin);
}

static void run_latency(char **arguments) {
    int partitions = atoi(arguments[2]);
    size_t record = strtoull(arguments[3], 0, 10);
    double duration = atof(arguments[4]);
    void *client = open_producer(arguments, arguments[5], arguments + 6);
    void *topic = topic_new(client, arguments[1], NULL);
    char *payload = random_bytes(record);
    long capacity = 1 << 20, count = 0, sent = 0;
    double *samples = malloc(capacity * sizeof *samples);
    for (int i = 0; i < 50 * partitions; i++) {
        send_record(client, topic, i % partitions, payload, record);
        wait_for(client, ++sent);
    }
    double end = now() + duration;
    while (count < capacity) {
        double begin = now();
        if (begin >= end) break;
        send_record(client, topic, count % partitions, payload, record);
        sent++;
        while (delivered + failed < sent) poll_client(client, 100);
        if (failed) die("delivery", err2str(last_error));
        samples[count++] = (now() - begin) * 1e3;
    }
    if (!count) die("latency", "no record was acknowledged");
    qsort(samples, count, sizeof *samples, compare);
    printf("{\"records\": %ld, \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"p999_ms\": %.4f, "
           "\"max_ms\": %.4f}\n",
           count, samples[count / 2], samples[count * 99 / 100], samples[count * 999 / 1000],
           samples[count - 1]);
}

static void run_consume(char **arguments) {
    int partitions = atoi(arguments[2]);
    size_t total = strtoull(arguments[3], 0, 10), bytes = 0;
    char error[512];
    void *conf = conf_new();
    set(conf, "bootstrap.servers", arguments[0]);
    set(conf, "group.id", "driver");
    set_all(conf, arguments + 4);
    void *client = client_new(CONSUMER, conf, error, sizeof error);
    if (!client) die("consumer", error);
    void *topic = topic_new(client, arguments[1], NULL);
    void *queue = queue_new(client);
    for (int p = 0; p < partitions; p++)
        if (consume_start(topic, p, OFFSET_BEGINNING, queue)) die("consume", "cannot start");
    static message *batch[10000];
    long records = 0;
    size_t wanted = 1; /* a batch call waits until it is full: never ask for more than is missing */
    double begin = 0, cpu_begin = 0, deadline = now() + 120;
    while (bytes < total) {
        ssize_t got = consume_batch(queue, 1000, batch, wanted);
        if (now() > deadline) die("consume", "not all records came within 120 s");
        for (ssize_t i = 0; i < got; i++) {
            if (!batch[i]->err) {
                /* The clock starts with the first record: connecting is not measured. */
                if (!records++) begin = now(), cpu_begin = cpu();
                bytes += batch[i]->len;
                size_t missing = bytes < total ? (total - bytes) / batch[i]->len + 1 : 1;
                wanted = missing < 10000 ? missing : 10000;
            }
            message_destroy(batch[i]);
        }
    }
    printf("{\"seconds\": %.6f, \"records\": %ld, \"bytes\": %zu, \"client_cpu_seconds\": %.6f}\n",
           now() - begin, records, bytes, cpu() - cpu_begin);
}

int main(int count, char **arguments) {
    if (count < 7) die("usage", "see the head of driver.c");
    load(arguments[1]);
    if (!strcmp(arguments[2], "produce") && count >= 9) run_produce(arguments + 3);
    else if (!strcmp(arguments[2], "latency") && count >= 9) run_latency(arguments + 3);
    else if (!strcmp(arguments[2], "consume")) run_consume(arguments + 3);
    else die("usage", "see the head of driver.c");
    fflush(stdout);
    _exit(0); /* closing a consumer waits for its group, which has no part in the figures */
}
