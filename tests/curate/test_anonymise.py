"""The model's pass over masked texts: what it may mask, what it may not, what is told, and that nothing is unread."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from server import Fault, Says, Server, burst

from suwen.corpora.records import Document
from suwen.curate import CurateError
from suwen.curate.anonymise import Anonymised, anonymise, anonymise_file
from suwen.durable import write_lines
from suwen.llm.asker import Unfinished

SAID = {"阿强": "name", "城南菜市场旁边的红房子": "address", "wx_strong88": "phone"}


def play(body: dict[str, Any]) -> str:
    text = body["messages"][1]["content"].split("文本：\n")[1]
    found = [{"kind": kind, "text": said} for said, kind in SAID.items() if said in text]
    return json.dumps({"found": found}, ensure_ascii=False)


def masked(ask: Any, url: str, *texts: str, **more: Any) -> list[Anonymised]:
    documents = [Document(f"d{number}", text) for number, text in enumerate(texts)]
    return list(anonymise(documents, ask(url, **more)))


def test_what_the_rules_missed_is_masked_everywhere_and_by_type(ask) -> None:
    text = "患者王小明，电话13912345678，小名阿强，住城南菜市场旁边的红房子，微信wx_strong88。阿强诉头痛。"
    with Server(play) as server:
        (done,) = masked(ask, server.url, text)
        sent = server.log[0][1]["messages"][1]["content"]
    # The model sees nothing that the rules have found.
    assert "王小明" not in sent and "13912345678" not in sent
    assert done.document.text == "患者[姓名1]，电话[电话1]，小名[姓名2]，住[地址1]，微信[账号1]。[姓名2]诉头痛。"
    assert done.by_rules == {"name": 1, "phone": 1, "account": 1} and len(done.by_model) == 2
    assert done.refused == () and done.left == () and done.complete


def test_what_is_not_there_or_not_plausible_is_refused(ask) -> None:
    found = [
        {"kind": "name", "text": "李四"},
        {"kind": "id_card", "text": "糖尿病"},
        {"kind": "name", "text": "姓名1"},
        {"kind": "email", "text": "头痛三天"},
        {"kind": "name", "text": "痛"},
    ]
    with Server(lambda _: json.dumps({"found": found})) as server:
        (done,) = masked(ask, server.url, "患者王小明，患糖尿病，头痛三天。")
    assert done.document.text == "患者[姓名1]，患糖尿病，头痛三天。"
    assert len(done.refused) == 5 and done.by_model == ()


def test_an_illness_that_a_model_calls_a_name_stays(ask) -> None:
    found = [{"kind": "name", "text": said} for said in ("帕金森病", "帕金森", "石大夫", "阿强")]
    with Server(lambda _: json.dumps({"found": found})) as server:
        (done,) = masked(ask, server.url, "阿强患帕金森病，外用石大夫膏。")
    assert done.document.text == "[姓名1]患帕金森病，外用石大夫膏。"
    assert {finding.text for finding in done.refused} == {"帕金森病", "帕金森", "石大夫"}


def test_metadata_is_masked_by_the_names_of_its_fields() -> None:
    metadata = {"姓名": "王建国", "age": 46, "phone": 13912345678, "tags": ["王建国", "流感"]}
    (done,) = anonymise([Document("d", "王建国诉头痛。", "", metadata)])
    assert done.document.text == "[姓名1]诉头痛。"
    assert done.document.metadata == {"姓名": "[姓名1]", "age": 46, "phone": "[电话1]", "tags": ["[姓名1]", "流感"]}


def test_a_document_that_fails_stops_the_run_or_is_counted(ask, tmp_path: Path) -> None:
    rows = [{"_id": "a", "text": "头痛。", "姓名": "K-9 #7 xx"}, {"_id": "b", "text": "患者王小明，男。"}]
    write_lines(tmp_path / "notes.jsonl", rows)
    to = tmp_path / "masked.jsonl"
    with Server(play) as server:
        with pytest.raises(
            CurateError, match=r"the document 'a': the field 'metadata\.姓名' should hold a name.*--skip-bad"
        ):
            anonymise_file(tmp_path / "notes.jsonl", to, ask(server.url))
        assert not to.exists()
        counts = anonymise_file(tmp_path / "notes.jsonl", to, ask(server.url), skip_bad=True)
    assert (counts["documents"], counts["left_out"]) == (1, 1)
    assert [json.loads(line)["text"] for line in to.read_text(encoding="utf-8").splitlines()] == ["患者[姓名1]，男。"]


def test_latin_names_are_masked_as_whole_words_only(ask) -> None:
    reply = json.dumps({"found": [{"kind": "name", "text": "Ann"}]})
    with Server(lambda _: reply) as server:
        (done,) = masked(ask, server.url, "Ann came with annual checks; Annette and Ann left.", language="en")
    assert done.document.text == "[NAME1] came with annual checks; Annette and [NAME1] left."


def test_titles_are_masked_with_their_text(ask) -> None:
    with Server(play) as server:
        (done,) = anonymise([Document("d", "阿强诉头痛。", "阿强的病历")], ask(server.url))
    assert (done.document.title, done.document.text) == ("[姓名1]的病历", "[姓名1]诉头痛。")


def test_long_texts_are_read_in_pieces_to_the_end(ask) -> None:
    text = (
        "".join(f"第{number}天病情平稳。" for number in range(200))
        + "阿强出院。"
        + "".join(chr(0x5000 + number) for number in range(900))
        + "阿强复诊。"
    )
    with Server(play) as server:
        (done,) = masked(ask, server.url, text, settings={"context": 1200})
        pieces = [
            body["messages"][1]["content"].split("文本：\n")[1].split("\n\n以 JSON")[0] for _, body, _ in server.log
        ]
    assert len(pieces) > 3 and done.complete
    assert sum(map(len, pieces)) == len(text)
    assert "阿强" not in done.document.text and done.document.text.count("[姓名1]") == 2


def test_a_document_without_an_answer_is_masked_by_rules_and_told(ask) -> None:
    with Server(lambda _: Says("", refusal="no")) as server:
        (done,) = masked(ask, server.url, "患者王小明，小名阿强。")
    assert done.document.text == "患者[姓名1]，小名阿强。" and not done.complete


def test_what_still_looks_personal_is_told(ask) -> None:
    with Server(play) as server:
        (done,) = masked(ask, server.url, "标本条码 110105194912310021。")
    assert [span.kind for span in done.left] == ["id_card"]


def test_without_a_model_the_rules_stand_alone() -> None:
    (done,) = anonymise([Document("d", "患者王小明，小名阿强。")])
    assert done.document.text == "患者[姓名1]，小名阿强。" and done.complete and done.by_model == ()


def test_a_stopped_run_goes_on_and_faults_change_nothing(ask) -> None:
    texts = [f"第{number}号，阿强诉头痛。" for number in range(6)]
    with Server(play, burst(Fault("status", 503), 2)) as server:
        with pytest.raises(Unfinished):
            masked(ask, server.url, *texts, calls=4)
        done = masked(ask, server.url, *texts)
    assert [one.document.text for one in done] == [f"第{number}号，[姓名1]诉头痛。" for number in range(6)]


def test_a_context_without_room_is_told_before_any_call(ask) -> None:
    with pytest.raises(CurateError, match="no room for a text"):
        masked(ask, "http://127.0.0.1:9/v1", "甲", settings={"context": 300})


def test_the_sheet_draws_its_share_and_all_that_is_suspicious(ask, tmp_path: Path) -> None:
    texts = ["标本条码 110105194912310021。" if number == 7 else "阿强诉头痛。" for number in range(100)]
    records = ({"_id": f"d{number}", "text": text} for number, text in enumerate(texts))
    write_lines(tmp_path / "notes.jsonl", records)

    def checked(name: str, share: float) -> int:
        sheet = {"sheet": tmp_path / name, "share": share, "seed": 3}
        with Server(play) as server:
            counts = anonymise_file(tmp_path / "notes.jsonl", tmp_path / "masked.jsonl", ask(server.url), **sheet)
        assert counts["documents"] == 100 and counts["suspicious"] == 1
        return counts["to_check"]

    assert checked("few.csv", 0.0) == 1 and 10 <= checked("check.csv", 0.25) <= 40
    assert checked("again.csv", 0.25) and (tmp_path / "check.csv").read_bytes() == (tmp_path / "again.csv").read_bytes()
    rows = list(csv.DictReader((tmp_path / "check.csv").open(encoding="utf-8-sig")))
    (suspicious,) = [row for row in rows if row["document"] == "d7"]
    assert suspicious["still suspicious"] == "id_card at 5" and "阿强" not in str(rows)
    with pytest.raises(CurateError, match="0 to 1"):
        checked("x.csv", 2.0)
