// The pages by name; a page with a label is in the list, and `g` and its key open it.

import * as broker from "./pages/broker.js";
import * as cluster from "./pages/cluster.js";
import * as configuration from "./pages/configuration.js";
import * as disks from "./pages/disks.js";
import * as events from "./pages/events.js";
import * as failovers from "./pages/failovers.js";
import * as group from "./pages/group.js";
import * as groups from "./pages/groups.js";
import * as moves from "./pages/moves.js";
import * as partition from "./pages/partition.js";
import * as records from "./pages/records.js";
import * as topic from "./pages/topic.js";
import * as topics from "./pages/topics.js";

export const PAGES = {
  cluster: { module: cluster, label: "Cluster", key: "c" },
  broker: { module: broker, parent: "cluster" },
  topics: { module: topics, label: "Topics", key: "t" },
  topic: { module: topic, parent: "topics" },
  partition: { module: partition, parent: "topics" },
  groups: { module: groups, label: "Groups", key: "g" },
  group: { module: group, parent: "groups" },
  moves: { module: moves, label: "Moves", key: "m" },
  disks: { module: disks, label: "Disks", key: "d" },
  records: { module: records, label: "Records", key: "r" },
  configuration: { module: configuration, label: "Configuration", key: "o" },
  events: { module: events, label: "Events", key: "e" },
  failovers: { module: failovers, label: "Failovers", key: "f" },
};
