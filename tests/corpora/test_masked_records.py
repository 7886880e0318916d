"""Records: fields say what stands in them, values go wherever they stand, and what fails is named without its value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from suwen.corpora.masked_files import mask_documents
from suwen.corpora.masked_records import mask_record
from suwen.text.mask import Masker


def masked(record: dict[str, Any], **options: Any) -> dict[str, Any]:
    done = mask_record(record, Masker(options.pop("kinds", None)), **options)
    assert done.problems == []
    return done.record


def test_a_labelled_value_goes_wherever_it_stands_in_the_record() -> None:
    record = {
        "姓名": "王建国",
        "记录": "王建国诉头晕。",
        "visits": [{"doctor": "Emily Carter", "note": "Seen by Carter."}],
    }
    assert masked(record) == {
        "姓名": "[姓名1]",
        "记录": "[姓名1]诉头晕。",
        "visits": [{"doctor": "[姓名2]", "note": "Seen by [NAME3]."}],
    }


def test_numbers_become_masks_and_ages_doses_and_years_stay() -> None:
    record = {
        "phone": 13912345678,
        "record_number": 485095,
        "age": 38,
        "year": 2021,
        "dose": 250,
        "床号": "7",
        "住": "7天",
    }
    done = masked(record)
    assert done == {
        "phone": "[电话1]",
        "record_number": "[病历号1]",
        "age": 38,
        "year": 2021,
        "dose": 250,
        "床号": "[床号1]",
        "住": "7天",
    }


def test_a_bare_number_with_the_shape_of_a_phone_is_masked() -> None:
    assert masked({"x": 13912345678, "y": 99999999999999999}) == {"x": "[PHONE1]", "y": 99999999999999999}


def test_parts_belong_to_the_field_above_them() -> None:
    record = {
        "address": {"street": "12 Oak Points", "city": "Salem"},
        "patient name": {"first": "Aiyana", "second": "Redbird"},
    }
    assert masked(record) == {
        "address": {"street": "[ADDRESS1]", "city": "[ADDRESS2]"},
        "patient name": {"first": "[NAME1]", "second": "[NAME2]"},
    }


def test_a_field_called_name_may_hold_an_illness() -> None:
    record = {"name": "高血压", "患者": "高血压患者", "drug name": "Lisinopril", "title": "麻疹"}
    assert masked(record) == record


def test_several_names_and_names_with_a_note() -> None:
    done = masked({"医生姓名": "王建国、李芳", "联系人姓名": "张伟（父亲）", "监护人姓名": "不详"})
    assert done == {"医生姓名": "[姓名1]、[姓名2]", "联系人姓名": "[姓名3]（父亲）", "监护人姓名": "不详"}


def test_only_the_kinds_and_fields_that_are_asked_for() -> None:
    record = {"姓名": "王建国", "电话": "13912345678", "text": "王建国"}
    assert masked(record, kinds=["phone"]) == {"姓名": "王建国", "电话": "[电话1]", "text": "王建国"}
    assert masked(record, fields=["姓名"]) == {"姓名": "[姓名1]", "电话": "13912345678", "text": "王建国"}


def test_what_cannot_be_read_as_a_name_is_a_problem_that_does_not_say_it() -> None:
    (problem,) = mask_record({"姓名": "K-9 #7 xx"}, Masker()).problems
    assert "'姓名'" in problem and "K-9" not in problem


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_columns_are_fields(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"notes.{suffix}"
    mark = {"csv": ",", "tsv": "\t"}.get(suffix)
    rows = [["姓名", "年龄", "备注"], ["王建国", "46", "王建国要求复诊"]]
    text = "\n".join(mark.join(row) for row in rows) if mark else json.dumps(dict(zip(*rows, strict=True)))
    file.write_text(text + "\n", encoding="utf-8")
    (done,) = mask_documents(file)
    assert done.content == {"姓名": "[姓名1]", "年龄": "46", "备注": "[姓名1]要求复诊"} and not done.problems
