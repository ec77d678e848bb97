"""Options of upserts on the command line."""

from __future__ import annotations

import pytest
import typer

from tidelog.cli.pipelines.prove import _check_mode
from tidelog.cli.pipelines.record_forms import RecordForm


def test_the_key_is_the_record_key_by_default() -> None:
    assert RecordForm.of(None, None, None, upsert=True).keys == ("key",)
    assert RecordForm.of(None, None, None, upsert=False).keys == ()
    form = RecordForm.of(None, "id long, n int", "id, n", upsert=True)
    assert (form.keys, form.without) == (("id", "n"), ("key", "value"))
    assert RecordForm.of("id long", None, None, upsert=True).without == ("value",)


@pytest.mark.parametrize(
    ("json", "debezium", "key", "upsert", "sentence"),
    [
        (None, None, "id", False, "--key belongs to --upsert"),
        (None, "id long", None, False, "--debezium needs --upsert"),
        ("id long", "id long", None, True, "--debezium and --json exclude each other"),
    ],
)
def test_options_that_do_not_fit(
    json: str | None, debezium: str | None, key: str | None, upsert: bool, sentence: str
) -> None:
    with pytest.raises(typer.BadParameter, match=sentence):
        RecordForm.of(json, debezium, key, upsert=upsert)


@pytest.mark.parametrize(
    ("bootstrap", "form", "is_upsert", "sentence"),
    [
        (None, RecordForm(), True, "the latest row of each key.*: --bootstrap-server names"),
        ("b:1", RecordForm(), False, "--bootstrap-server needs --deep or --partition-column"),
        (None, RecordForm(json="n int"), False, "--json and --debezium belong to a table of"),
    ],
)
def test_proofs_of_both_modes(
    bootstrap: str | None, form: RecordForm, is_upsert: bool, sentence: str
) -> None:
    with pytest.raises(typer.BadParameter, match=sentence):
        _check_mode(bootstrap, form, is_upsert=is_upsert, has_log=False)
