"""The examination of `tidelog doctor`: it first reads facts, which pure functions then judge.

`diagnosis` is the result: findings with remedies. `cluster_survey` reads the facts about a running
cluster (`cluster_facts`), and `cluster_findings` judges them with `broker_findings`,
`partition_findings`, `move_findings` and `group_findings`. Other programs that show findings import
these functions, too.
"""
