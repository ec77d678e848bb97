// The pages by name; a page with a label is in the list, and `g` and its key open it.

import * as cluster from "./pages/cluster.js";
import * as group from "./pages/group.js";
import * as groups from "./pages/groups.js";
import * as partition from "./pages/partition.js";
import * as topic from "./pages/topic.js";
import * as topics from "./pages/topics.js";

export const PAGES = {
  cluster: { module: cluster, label: "Cluster", key: "c" },
  topics: { module: topics, label: "Topics", key: "t" },
  topic: { module: topic, parent: "topics" },
  partition: { module: partition, parent: "topics" },
  groups: { module: groups, label: "Groups", key: "g" },
  group: { module: group, parent: "groups" },
};
