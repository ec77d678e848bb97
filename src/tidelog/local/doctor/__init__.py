"""The examination of `tidelog doctor`: it first reads facts, which pure functions then judge.

`diagnosis` is the result: findings with remedies. `cluster_survey` reads the facts about a running
cluster (`cluster_facts`), and `cluster_findings` judges them with `broker_findings`,
`partition_findings`, `move_findings` and `group_findings`. `directory_facts` and
`directory_findings` examine a log directory, `machine_facts` and `machine_findings` the limits and
disks of this machine, and `config_findings` a configuration file. Other programs that show findings
import these functions, too.
"""
