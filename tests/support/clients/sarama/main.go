// Sarama, which kafka_exporter, Burrow and kafkactl are built on: what such programs read and write.
//
// The argument is the list of bootstrap addresses, the standard input a command in JSON, and the
// output a document in JSON. "read" reads what exporters read. "reset" commits offsets for a group
// without members, as tools do that reset a group.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/IBM/sarama"
)

type command struct {
	Op      string            `json:"op"`
	Topic   string            `json:"topic"`
	Group   string            `json:"group"`
	Offsets map[int32]int64   `json:"offsets"`
	Targets [][]int32         `json:"targets"`
	Configs map[string]string `json:"configs"`
}

type partition struct {
	ID, Leader                int32
	Replicas, ISR             []int32
	Oldest, Newest, Committed int64
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	var asked command
	check(json.NewDecoder(os.Stdin).Decode(&asked))
	config := sarama.NewConfig()
	config.ClientID = "exporter"
	config.Version = sarama.V3_6_0_0
	client, err := sarama.NewClient(strings.Split(os.Args[1], ","), config)
	check(err)
	admin, err := sarama.NewClusterAdminFromClient(client)
	check(err)
	var found any = map[string]any{}
	switch asked.Op {
	case "read":
		found = read(client, admin, asked)
	case "reset":
		reset(client, asked)
	case "move":
		check(admin.AlterPartitionReassignments(asked.Topic, asked.Targets))
	case "delete_records":
		check(admin.DeleteRecords(asked.Topic, asked.Offsets))
	case "alter_configs":
		entries := map[string]sarama.IncrementalAlterConfigsEntry{}
		for name, value := range asked.Configs {
			text := value
			entries[name] = sarama.IncrementalAlterConfigsEntry{
				Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &text,
			}
		}
		check(admin.IncrementalAlterConfig(sarama.TopicResource, asked.Topic, entries, false))
	default:
		check(fmt.Errorf("no such command: %s", asked.Op))
	}
	check(json.NewEncoder(os.Stdout).Encode(found))
	check(admin.Close())
}

func read(client sarama.Client, admin sarama.ClusterAdmin, asked command) any {
	brokers, controller, err := admin.DescribeCluster()
	check(err)
	ids := []int32{}
	for _, broker := range brokers {
		ids = append(ids, broker.ID())
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	described, err := admin.DescribeTopics([]string{asked.Topic})
	check(err)
	committed, err := admin.ListConsumerGroupOffsets(asked.Group, nil)
	check(err)
	partitions := []partition{}
	for _, each := range described[0].Partitions {
		oldest, err := client.GetOffset(asked.Topic, each.ID, sarama.OffsetOldest)
		check(err)
		newest, err := client.GetOffset(asked.Topic, each.ID, sarama.OffsetNewest)
		check(err)
		at := int64(-1)
		if block := committed.GetBlock(asked.Topic, each.ID); block != nil {
			at = block.Offset
		}
		partitions = append(partitions, partition{
			each.ID, each.Leader, each.Replicas, each.Isr, oldest, newest, at,
		})
	}
	sort.Slice(partitions, func(i, j int) bool { return partitions[i].ID < partitions[j].ID })
	groups, err := admin.ListConsumerGroups()
	check(err)
	state, err := admin.DescribeConsumerGroups([]string{asked.Group})
	check(err)
	dirs, err := admin.DescribeLogDirs(ids)
	check(err)
	sizes := map[int32]int64{}
	for broker, directories := range dirs {
		for _, directory := range directories {
			for _, topic := range directory.Topics {
				for _, each := range topic.Partitions {
					if topic.Topic == asked.Topic {
						sizes[broker] += each.Size
					}
				}
			}
		}
	}
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: asked.Topic})
	check(err)
	configs := map[string]string{}
	for _, entry := range entries {
		if !entry.Default {
			configs[entry.Name] = entry.Value
		}
	}
	return map[string]any{
		"brokers": ids, "controller": controller, "partitions": partitions, "groups": groups,
		"state": state[0].State, "members": len(state[0].Members), "sizes": sizes, "configs": configs,
	}
}

func reset(client sarama.Client, asked command) {
	offsets, err := sarama.NewOffsetManagerFromClient(asked.Group, client)
	check(err)
	for id, offset := range asked.Offsets {
		each, err := offsets.ManagePartition(asked.Topic, id)
		check(err)
		each.ResetOffset(offset, "")
		each.MarkOffset(offset, "")
		check(each.Close())
	}
	offsets.Commit()
	check(offsets.Close())
}
