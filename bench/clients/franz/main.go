// franz-go with its defaults: see bench/failover_clients.py.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func say(partition int32) {
	fmt.Printf("%d %d\n", partition, time.Now().UnixMicro())
}

func produce(bootstrap []string, topic string, partitions int32) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	milliseconds, err := strconv.Atoi(os.Getenv("TIDELOG_BENCH_PACE_MS"))
	if err != nil {
		panic(err)
	}
	for range time.Tick(time.Duration(milliseconds) * time.Millisecond) {
		for partition := int32(0); partition < partitions; partition++ {
			record := &kgo.Record{Topic: topic, Partition: partition, Value: []byte("value")}
			client.Produce(context.Background(), record, func(done *kgo.Record, err error) {
				if err == nil {
					say(done.Partition)
				}
			})
		}
	}
	return nil
}

func consume(bootstrap []string, topic string, group string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap...), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))
	if err != nil {
		return err
	}
	for {
		client.PollFetches(context.Background()).EachRecord(func(read *kgo.Record) {
			say(read.Partition)
		})
	}
}

func run(words []string) error {
	bootstrap := strings.Split(words[1], ",")
	if words[0] == "consume" {
		return consume(bootstrap, words[2], words[3])
	}
	partitions, err := strconv.ParseInt(words[3], 10, 32)
	if err != nil {
		return err
	}
	return produce(bootstrap, words[2], int32(partitions))
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
