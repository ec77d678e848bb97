"""The examination behind `tidelog doctor`: facts are read first, and then judged by pure functions.

`diagnosis` is the result: findings with remedies. `cluster_survey` reads the facts about a running
cluster (`cluster_facts`), and `cluster_findings` judges them with `broker_findings`,
`partition_findings`, `move_findings` and `group_findings`. Other programs that show findings import
these functions, too.
"""
