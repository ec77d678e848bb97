// franz-go, asked by lines of JSON: see matrix/worker.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

const (
	patience = 60 * time.Second
	window   = 200
)

type header struct {
	name  string
	value []byte
}

func (h header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.name, h.value}) }

func (h *header) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&h.name, &h.value})
}

// record is as worker.py has it: bytes are base64, as encoding/json writes them.
type record struct {
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
	Timestamp *int64   `json:"timestamp"`
}

type request struct {
	Op          string            `json:"op"`
	Bootstrap   string            `json:"bootstrap"`
	Topic       string            `json:"topic"`
	Group       string            `json:"group"`
	Partition   int32             `json:"partition"`
	Partitions  int32             `json:"partitions"`
	Replicas    int16             `json:"replicas"`
	Total       int               `json:"total"`
	Codec       string            `json:"codec"`
	Records     []record          `json:"records"`
	Offset      *int64            `json:"offset"`
	Timestamp   *int64            `json:"timestamp"`
	At          any               `json:"at"`
	Before      int64             `json:"before"`
	Broker      int32             `json:"broker"`
	Configs     map[string]string `json:"configs"`
	Cooperative bool              `json:"cooperative"`
	Instance    *string           `json:"instance"`
	Member      int               `json:"member"`
	Writer      int               `json:"writer"`
	ID          string            `json:"id"`
}

type worker struct {
	seeds   []string
	admin   *kadm.Client
	members []*member
	writers []*writer
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func (w *worker) client(options ...kgo.Opt) (*kgo.Client, error) {
	options = append(options, kgo.SeedBrokers(w.seeds...), kgo.FetchMaxWait(100*time.Millisecond))
	return kgo.NewClient(options...)
}

func (w *worker) open(bootstrap string) (any, error) {
	w.seeds = strings.Split(bootstrap, ",")
	client, err := w.client()
	if err != nil {
		return nil, err
	}
	w.admin = kadm.NewClient(client)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/twmb/franz-go" {
				return strings.TrimPrefix(module.Version, "v"), nil
			}
		}
	}
	return nil, fmt.Errorf("the program does not know franz-go's version")
}

func (w *worker) write(ctx context.Context, r request) error {
	client, err := w.client(
		kgo.ProducerBatchCompression(codecs[r.Codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(50*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	var records []*kgo.Record
	for _, each := range r.Records {
		sent := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: each.Key, Value: each.Value}
		if each.Timestamp != nil {
			sent.Timestamp = time.UnixMilli(*each.Timestamp)
		}
		for _, one := range each.Headers {
			sent.Headers = append(sent.Headers, kgo.RecordHeader{Key: one.name, Value: one.value})
		}
		records = append(records, sent)
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

func (w *worker) initTransactions(ctx context.Context, id string) error {
	client, err := w.client(kgo.TransactionalID(id))
	if err != nil {
		return err
	}
	defer client.Close()
	_, _, err = client.ProducerID(ctx)
	return err
}

// versionGuess is the release that franz-go's prober takes the first broker for.
func (w *worker) versionGuess(ctx context.Context) (any, error) {
	client, err := w.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	told, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	return kversion.FromApiVersionsResponse(told).VersionGuess(), nil
}

func (w *worker) offset(ctx context.Context, topic string, partition int32, at any) (int64, error) {
	var listed kadm.ListedOffsets
	var err error
	switch when := at.(type) {
	case float64:
		listed, err = w.admin.ListOffsetsAfterMilli(ctx, int64(when), topic)
	case string:
		if when == "earliest" {
			listed, err = w.admin.ListStartOffsets(ctx, topic)
		} else {
			listed, err = w.admin.ListEndOffsets(ctx, topic)
		}
	}
	if err != nil {
		return 0, err
	}
	found, ok := listed.Lookup(topic, partition)
	if !ok {
		return 0, fmt.Errorf("no answer about partition %d", partition)
	}
	return found.Offset, found.Err
}

func (w *worker) read(ctx context.Context, r request) (any, error) {
	found := []record{}
	end, err := w.offset(ctx, r.Topic, r.Partition, "latest")
	if err != nil {
		return nil, err
	}
	start := kgo.NewOffset()
	if r.Timestamp != nil {
		start = start.AfterMilli(*r.Timestamp)
	} else {
		start = start.At(*r.Offset)
		if *r.Offset >= end {
			return found, nil
		}
	}
	client, err := w.client(kgo.ConsumePartitions(
		map[string]map[int32]kgo.Offset{r.Topic: {r.Partition: start}}))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for last := int64(-1); last < end-1; {
		fetches := client.PollFetches(ctx)
		if errors := fetches.Errors(); len(errors) > 0 {
			return nil, errors[0].Err
		}
		fetches.EachRecord(func(one *kgo.Record) {
			last = one.Offset
			at := one.Timestamp.UnixMilli()
			told := record{Key: one.Key, Value: one.Value, Headers: []header{}, Timestamp: &at}
			for _, each := range one.Headers {
				told.Headers = append(told.Headers, header{each.Key, each.Value})
			}
			found = append(found, told)
		})
	}
	return found, nil
}

// writer is an idempotent producer that sends 0, 1, 2, ... until it is told to stop.
type writer struct {
	ended   atomic.Bool
	sent    int64
	failure error
	done    chan struct{}
}

func (w *worker) startWriter(topic string, partition int32) (*writer, error) {
	client, err := w.client(
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(2*time.Millisecond),
		kgo.ProducerBatchMaxBytes(1000),
		kgo.MaxBufferedRecords(window),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
	)
	if err != nil {
		return nil, err
	}
	made := &writer{done: make(chan struct{})}
	go func() {
		defer close(made.done)
		defer client.Close()
		var lock sync.Mutex
		for !made.ended.Load() {
			value := []byte(strconv.FormatInt(made.sent, 10))
			sent := &kgo.Record{Topic: topic, Partition: partition, Value: value}
			client.Produce(context.Background(), sent, func(_ *kgo.Record, err error) {
				lock.Lock()
				defer lock.Unlock()
				if err != nil && made.failure == nil {
					made.failure = err
				}
			})
			made.sent++
		}
		if err := client.Flush(context.Background()); err != nil {
			made.failure = err
		}
	}()
	return made, nil
}

func (w *writer) stop() (any, error) {
	w.ended.Store(true)
	select {
	case <-w.done:
		return w.sent, w.failure
	case <-time.After(patience):
		return nil, fmt.Errorf("not everything is acknowledged")
	}
}

// member is a consumer in a group, polled in the background.
type member struct {
	lock       sync.Mutex
	client     *kgo.Client
	assigned   map[int32]bool
	received   [][2]int64
	revoked    [][]int32
	rebalances int
	done       chan struct{}
}

func (w *worker) join(r request) (*member, error) {
	made := &member{
		assigned: map[int32]bool{}, received: [][2]int64{}, revoked: [][]int32{},
		done: make(chan struct{}),
	}
	taken := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
		made.lock.Lock()
		defer made.lock.Unlock()
		for _, partition := range lost[r.Topic] {
			delete(made.assigned, partition)
		}
		if len(lost[r.Topic]) > 0 {
			made.revoked = append(made.revoked, lost[r.Topic])
		}
	}
	balancer := kgo.RangeBalancer()
	if r.Cooperative {
		balancer = kgo.CooperativeStickyBalancer()
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(r.Group),
		kgo.ConsumeTopics(r.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(balancer),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(
			func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
				made.lock.Lock()
				defer made.lock.Unlock()
				for _, partition := range given[r.Topic] {
					made.assigned[partition] = true
				}
				made.rebalances++
			}),
		kgo.OnPartitionsRevoked(taken),
		kgo.OnPartitionsLost(taken),
	}
	if r.Instance != nil {
		options = append(options, kgo.InstanceID(*r.Instance))
	}
	client, err := w.client(options...)
	if err != nil {
		return nil, err
	}
	made.client = client
	go made.poll()
	return made, nil
}

func (m *member) poll() {
	defer close(m.done)
	for {
		fetches := m.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		m.lock.Lock()
		fetches.EachRecord(func(one *kgo.Record) {
			m.received = append(m.received, [2]int64{int64(one.Partition), one.Offset})
		})
		m.lock.Unlock()
	}
}

func (m *member) state() any {
	m.lock.Lock()
	defer m.lock.Unlock()
	assigned := []int32{}
	for partition := range m.assigned {
		assigned = append(assigned, partition)
	}
	return map[string]any{
		"assigned": assigned, "received": append([][2]int64{}, m.received...),
		"revoked": append([][]int32{}, m.revoked...), "rebalances": m.rebalances,
	}
}

func (m *member) close() {
	m.client.Close()
	<-m.done
}

func (w *worker) describeTopic(ctx context.Context, topic string) (any, error) {
	details, err := w.admin.ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	found := []any{}
	for _, each := range details[topic].Partitions.Sorted() {
		found = append(found, map[string]any{
			"partition": each.Partition, "leader": each.Leader,
			"replicas": each.Replicas, "isr": each.ISR,
		})
	}
	return found, details[topic].Err
}

func (w *worker) describeConfigs(ctx context.Context, topic string) (any, error) {
	described, err := w.admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	found := map[string]*string{}
	for _, each := range described[0].Configs {
		found[each.Key] = each.Value
	}
	return found, described[0].Err
}

func (w *worker) alterConfigs(ctx context.Context, topic string, configs map[string]string) error {
	var changes []kadm.AlterConfig
	for name, value := range configs {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	altered, err := w.admin.AlterTopicConfigs(ctx, changes, topic)
	if err != nil {
		return err
	}
	return altered[0].Err
}

func (w *worker) deleteRecords(ctx context.Context, r request) (any, error) {
	var wanted kadm.Offsets
	wanted.AddOffset(r.Topic, r.Partition, r.Before, -1)
	deleted, err := w.admin.DeleteRecords(ctx, wanted)
	if err != nil {
		return nil, err
	}
	found, _ := deleted.Lookup(r.Topic, r.Partition)
	return found.LowWatermark, found.Err
}

func (w *worker) describeCluster(ctx context.Context) (any, error) {
	found, err := w.admin.BrokerMetadata(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]any{"brokers": found.Brokers.NodeIDs(), "controller": found.Controller}, nil
}

func (w *worker) elect(ctx context.Context, topic string, partition int32) error {
	set := kadm.TopicsSet{}
	set.Add(topic, partition)
	results, err := w.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
	if err != nil {
		return err
	}
	return results[topic][partition].Err
}

func (w *worker) logDirSizes(ctx context.Context, broker int32, topic string) (any, error) {
	described, err := w.admin.DescribeBrokerLogDirs(ctx, broker, nil)
	if err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	described.EachPartition(func(one kadm.DescribedLogDirPartition) {
		if one.Topic == topic {
			sizes[strconv.Itoa(int(one.Partition))] = one.Size
		}
	})
	return sizes, described.Error()
}

func (w *worker) describeGroup(ctx context.Context, group string) (any, error) {
	described, err := w.admin.DescribeGroups(ctx, group)
	if err != nil {
		return nil, err
	}
	found := described[group]
	members := []any{}
	for _, each := range found.Members {
		partitions := []int32{}
		if assigned, ok := each.Assigned.AsConsumer(); ok {
			for _, topic := range assigned.Topics {
				partitions = append(partitions, topic.Partitions...)
			}
		}
		members = append(members, map[string]any{
			"client_id": each.ClientID, "partitions": partitions})
	}
	return map[string]any{
		"state": found.State, "protocol": found.Protocol, "members": members}, found.Err
}

func (w *worker) groupOffsets(ctx context.Context, group string) (any, error) {
	fetched, err := w.admin.FetchOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	found := map[string]int64{}
	fetched.Each(func(one kadm.OffsetResponse) {
		found[strconv.Itoa(int(one.Partition))] = one.At
	})
	return found, fetched.Error()
}

func (w *worker) setGroupOffset(ctx context.Context, r request) error {
	var wanted kadm.Offsets
	wanted.AddOffset(r.Topic, r.Partition, *r.Offset, -1)
	committed, err := w.admin.CommitOffsets(ctx, r.Group, wanted)
	if err != nil {
		return err
	}
	return committed.Error()
}

func (w *worker) createTopic(ctx context.Context, r request) error {
	configs := map[string]*string{}
	for name, value := range r.Configs {
		configs[name] = &value
	}
	_, err := w.admin.CreateTopic(ctx, r.Partitions, r.Replicas, configs, r.Topic)
	return err
}

func (w *worker) createPartitions(ctx context.Context, topic string, total int) error {
	results, err := w.admin.UpdatePartitions(ctx, total, topic)
	if err != nil {
		return err
	}
	return results.Error()
}

func (w *worker) answerRecords(ctx context.Context, r request) (any, error) {
	switch r.Op {
	case "open":
		return w.open(r.Bootstrap)
	case "write":
		return nil, w.write(ctx, r)
	case "read":
		return w.read(ctx, r)
	case "offset":
		return w.offset(ctx, r.Topic, r.Partition, r.At)
	case "writer_start":
		made, err := w.startWriter(r.Topic, r.Partition)
		w.writers = append(w.writers, made)
		return len(w.writers) - 1, err
	case "writer_stop":
		return w.writers[r.Writer].stop()
	case "init_transactions":
		return nil, w.initTransactions(ctx, r.ID)
	case "version_guess":
		return w.versionGuess(ctx)
	case "join":
		made, err := w.join(r)
		w.members = append(w.members, made)
		return len(w.members) - 1, err
	case "member_state":
		return w.members[r.Member].state(), nil
	case "member_commit":
		return nil, w.members[r.Member].client.CommitUncommittedOffsets(ctx)
	case "member_close":
		w.members[r.Member].close()
		return nil, nil
	}
	return w.answerAdmin(ctx, r)
}

func (w *worker) answerAdmin(ctx context.Context, r request) (any, error) {
	switch r.Op {
	case "create_topic":
		return nil, w.createTopic(ctx, r)
	case "delete_topic":
		_, err := w.admin.DeleteTopic(ctx, r.Topic)
		return nil, err
	case "list_topics":
		found, err := w.admin.ListTopics(ctx)
		return found.Names(), err
	case "describe_topic":
		return w.describeTopic(ctx, r.Topic)
	case "create_partitions":
		return nil, w.createPartitions(ctx, r.Topic, r.Total)
	case "describe_configs":
		return w.describeConfigs(ctx, r.Topic)
	case "alter_configs":
		return nil, w.alterConfigs(ctx, r.Topic, r.Configs)
	case "delete_records":
		return w.deleteRecords(ctx, r)
	case "describe_cluster":
		return w.describeCluster(ctx)
	case "elect_preferred_leader":
		return nil, w.elect(ctx, r.Topic, r.Partition)
	case "log_dir_sizes":
		return w.logDirSizes(ctx, r.Broker, r.Topic)
	case "list_groups":
		found, err := w.admin.ListGroups(ctx)
		return found.Groups(), err
	case "describe_group":
		return w.describeGroup(ctx, r.Group)
	case "group_offsets":
		return w.groupOffsets(ctx, r.Group)
	case "set_group_offset":
		return nil, w.setGroupOffset(ctx, r)
	case "delete_group":
		_, err := w.admin.DeleteGroup(ctx, r.Group)
		return nil, err
	}
	return nil, fmt.Errorf("no operation %s", r.Op)
}

func main() {
	w := &worker{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked request
		answer := map[string]any{}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := json.Unmarshal(lines.Bytes(), &asked)
		if err == nil {
			answer["ok"], err = w.answerRecords(ctx, asked)
		}
		cancel()
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		if err := out.Encode(answer); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
