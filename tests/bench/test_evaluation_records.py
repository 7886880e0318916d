"""Fields of source records by kind: what they give, and what is said where they cannot."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suwen.bench.evaluation_records import LeftOut, Record, read_dialogue_sources


def test_fields_by_any_of_their_names_and_kinds() -> None:
    record = Record(
        {"ID": 7.0, "name": " A\u200b ", "none": None, "many": ["a", "b"], "ids": [1, "2"], "in": {"x": "3"}}, "f:1"
    )
    assert (record.id("_id", "id"), record.text("title", "name"), record.text("none")) == ("7", "A", "")
    assert (record.texts("many"), record.ids("ids")) == (["a", "b"], ["1", "2"])
    assert record.inside("in").whole_number("x") == 3 and record.optional_text("abstract") == ""
    assert record.holds(dict, "in") and record.has("name") and not record.has("none")


@pytest.mark.parametrize(
    ("ask", "why", "message"),
    [
        (lambda one: one.text("body"), "without_a_field", "f:1: no field called body; the fields here are: a, b, c"),
        (lambda one: one.text("a"), "with_a_field_of_another_kind", "f:1: the field 'a' holds [1], not a text"),
        (lambda one: one.texts("a"), "with_a_field_of_another_kind", "the field 'a' holds 1, not a list of texts"),
        (lambda one: one.id("b"), "without_an_id", "f:1: the field 'b' has no id in it"),
        (lambda one: one.whole_number("b"), "with_a_field_of_another_kind", "holds null, not a whole number"),
        (lambda one: one.inside("c").id("d"), "with_a_field_of_another_kind", "1: c: the field 'd' holds True, not"),
        (lambda one: list(one.each("a")), "with_a_field_of_another_kind", "holds 1, not a list of objects"),
    ],
)  # fmt: skip
def test_what_is_not_there_or_of_another_kind_is_told_with_its_place(
    ask: Callable[[Record], Any], why: str, message: str
) -> None:
    with pytest.raises(LeftOut) as told:
        ask(Record({"a": [1], "b": None, "c": {"d": True}}, "f:1"))
    assert told.value.why == why and message in str(told.value)


def test_dialogues_of_a_folder_come_with_its_tables(tmp_path: Path) -> None:
    (tmp_path / "x_dialogue_1.txt").write_text("id=1\nDialogue\nPatient: a?\nDoctor: b.\n", encoding="utf-8")
    (tmp_path / "rows.jsonl").write_text('{"query": "c"}\n', encoding="utf-8")
    (tmp_path / "readme.txt").write_text("no dialogue", encoding="utf-8")
    found = list(read_dialogue_sources([tmp_path]))
    assert [record.path.name for record in found] == ["x_dialogue_1.txt", "rows.jsonl"]
    assert found[0].texts("utterances") == ["Patient: a?", "Doctor: b."]
