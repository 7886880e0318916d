"""``suwen jury`` when things change or go wrong: texts, rules, judges that stop, models that think, refuse or bill."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

# Tests are imported by file (import-mode=importlib), so a neighbour is not on the path.
sys.path.insert(0, str(Path(__file__).parent))
from jury_bench import QUERIES, TEXTS, bench, labels, play

sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))
sys.path.insert(0, str(Path(__file__).parents[1] / "jury"))
from court import by_mark, judges
from server import Fault, Says

from suwen.corpora.records import Query
from suwen.jury.verdicts import read_verdicts
from suwen.jury.votes import Votes

__all__ = ["bench", "play"]
SOURCE = Path(__file__).parents[2] / "src"
RUN = "from suwen.cli.main import run; run()"


def test_votes_on_a_text_that_has_changed_label_nothing(bench):
    bench.pool()
    assert bench.judge("one", "two")[0] == 0
    code, before = bench("consensus", "work")
    assert code == 0 and before["left_out"]["stale"] == 0 and labels()["q1", "p0"] == "positive"
    bench.write(TEXTS | {"p0": "说的是别的 等级 D"})
    bench.pool()
    code, after = bench("consensus", "work")
    assert code == 0 and after["left_out"]["stale"] == 4 and ("q1", "p0") not in labels()
    assert {pair for pair in labels() if pair[1] == "p1"} == {("q1", "p1"), ("q2", "p1")}
    code, found = bench("report", "work")
    assert found["funnel"]["unjudged"] == 2 and found["left"]["stale"] == 4 and "4 votes were left out" in page()
    # Only what has changed is asked again; the old votes are kept apart.
    calls = bench.server.total
    code, done = bench.judge("one", "two")
    assert code == 0 and done["votes"] == 4 and bench.server.total == calls + 4
    code, now = bench("consensus", "work")
    assert now["left_out"]["stale"] == 0 and labels()["q1", "p0"] == "negative"
    with Votes("work/votes.db") as votes:
        assert {v.grade for v in votes.superseded()} == {"S"} and len(votes.superseded()) == 4


def page() -> str:
    return Path("work/report.html").read_text()


def test_votes_on_a_query_that_has_changed_label_nothing(bench):
    bench.pool()
    bench.judge("one")
    bench.write(TEXTS, [Query("q1", "高血压能喝酒吗"), QUERIES[1]])
    bench.pool()
    code, after = bench("consensus", "work")
    assert code == 0 and after["left_out"]["stale"] == 10 and {query for query, _ in labels()} == {"q2"}


def test_votes_on_pairs_outside_the_pool_are_left_out_and_counted(bench):
    bench.pool()
    bench.judge("one")
    bench("pool", "collection", "work", "--run", "theirs.run", "--depth", 4)
    code, after = bench("consensus", "work")
    assert code == 0 and after["left_out"]["outside"] == 12 and len(labels()) == 8


def test_an_assembly_leaves_verdicts_on_changed_texts_out(bench):
    bench.pool()
    bench.judge("one")
    bench("consensus", "work")
    bench.write(TEXTS | {"p0": "说的是别的 等级 D", "p2": "也变了"})
    done = bench.suwen("curate", "assemble", "collection", "work/verdicts.jsonl", "made", "--json")
    assert done.code == 0 and done.json["funnel"]["pairs_left_out_as_the_texts_have_changed"] == 4
    judged = Path("made/retrieval/qrels/test.tsv").read_text()
    assert "p0\t" not in judged and "p2\t" not in judged and "q1\tp1\t1" in judged


def test_agreement_is_with_the_jury_and_not_with_the_experts_themselves(bench):
    bench.pool()
    bench.judge("one", "two")
    bench("consensus", "work")
    bench("review", "sample", "work", "--size", 20)
    _disagree("work/review/sample.csv", "labels.csv")
    bench("review", "import", "work", "labels.csv", "--reviewer", "li")
    _, first = bench("review", "agreement", "work")
    assert first["overall"]["agreed"] == 0 and first["overall"]["of"] == 20 and first["overall"]["kappa"] < 0
    bench("consensus", "work", "--reviewed")
    bench("review", "sample", "work", "--size", 20, "--again")
    _, after = bench("review", "agreement", "work")
    assert after["overall"]["agreed"] == 0 and after["overall"]["of"] == 20 and not after["outdated"]
    assert after["rule"] == "unanimous, S and A positive; by one, two"
    bench("consensus", "work", "--worst", "C")
    _, old = bench("review", "agreement", "work")
    assert old["outdated"] and old["overall"]["agreed"] == 0
    said = bench.suwen("jury", "review", "agreement", "work")
    assert "OLD" in said.out and "S and A and B and C positive" in said.out.replace("\n", " ")
    bench("report", "work", "--worst", "C")
    assert "OLD" in page()


def _disagree(sheet: str, to: str) -> None:
    """An expert who says the opposite of every grade."""
    with Path(sheet).open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["label"] = "negative" if row["passage"].strip()[-1] in "SA" else "positive"
    with Path(to).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def test_an_experts_label_does_not_go_to_another_text(bench):
    bench.pool()
    bench.judge("one")
    bench("consensus", "work")
    bench("review", "sample", "work", "--size", 20)
    _disagree("work/review/sample.csv", "labels.csv")
    bench("review", "import", "work", "labels.csv", "--reviewer", "li")
    bench.write(TEXTS | {"p0": "说的是别的 等级 D"})
    bench.pool()
    bench.judge("one")
    code, done = bench("consensus", "work", "--reviewed")
    assert code == 0 and done["unused_reviews"] == 2
    # The expert said negative of the old text, and nothing of this one.
    assert labels()["q1", "p0"] == "negative" and labels()["q1", "p1"] == "negative"
    first = next(v for v in read_verdicts("work/verdicts.jsonl") if v.passage_id == "p0")
    assert [event["by"] for event in first.history] == ["jury"]


def test_experts_check_the_false_negatives_of_an_audit(bench):
    code, found = bench("audit", "collection", "work", "-j", "one", "--run", "theirs.run", "--depth", 10)
    assert code == 0 and found["false negatives"] == 3.5
    bench("review", "sample", "work", "--size", 50, "--false-negatives")
    sheet = Path("work/review/sample.csv").read_text(encoding="utf-8-sig").splitlines()
    assert len(sheet) == 1 + 7
    said = ["negative", *["positive"] * 6]
    lines = [sheet[0], *(f"{line.removesuffix(',,')},{label}," for line, label in zip(sheet[1:], said, strict=True))]
    Path("labels.csv").write_text("\n".join(lines))
    bench("review", "import", "work", "labels.csv", "--reviewer", "li")
    code, checked = bench("review", "agreement", "work")
    assert (checked["false_negatives"]["agreed"], checked["false_negatives"]["of"]) == (6, 7)
    calls = bench.server.total
    bench("audit", "collection", "work", "-j", "one", "--run", "theirs.run")
    assert "Experts find 6 of 7 sampled false negatives" in Path("work/audit.html").read_text()
    assert bench.server.total == calls


def thinking(body) -> str:
    """Says another grade for every passage while it thinks, with no mark where the thought begins."""
    drafts = judges(lambda *_: "S")(body)
    return f"先看一遍：{drafts} 不对，再想想。</think>\n{judges(by_mark)(body)}"


def test_what_a_model_thinks_is_not_its_grade(bench, play):
    play["now"] = thinking
    bench.pool()
    code, done = bench.judge("one")
    assert code == 0 and done["abstentions"] == 0 and bench.server.total == done["spent"]["calls"] == 4
    assert all(vote.grade == TEXTS[vote.passage_id][-1] for vote in bench.votes().values())


def test_a_thought_that_was_cut_is_no_grade_and_is_asked_again_when_there_is_room(bench, play):
    def cut(body):
        drafts = judges(lambda *_: "S")(body)
        return Says(f"<think>{drafts}", "length") if body["max_tokens"] == 600 else judges(by_mark)(body)

    play["now"] = cut
    bench.pool()
    code, done = bench.judge("one")
    assert code == 0 and done["kinds"] == {"cut": 20} and {v.abstained for v in bench.votes().values()} == {"cut"}
    config = Path("suwen.toml")
    config.write_text(config.read_text().replace("max_tokens = 600", "max_tokens = 900"))
    assert bench.judge("one")[1]["votes"] == 0
    code, done = bench.judge("one", retry_abstained="")
    assert code == 0 and done["votes"] == 20 and done["abstentions"] == 0
    assert all(vote.grade == TEXTS[vote.passage_id][-1] for vote in bench.votes().values())


def test_content_in_parts_and_grades_in_other_letters_are_read(bench, play):
    other = {"S": "Ｓ级", "A": "a", "D": " D级", "C": "等级：c"}

    def parts(body):
        text = judges(lambda model, query, passage: other[by_mark(model, query, passage)])(body)
        return Says("", parts=[{"type": "thinking", "thinking": []}, {"type": "text", "text": text}])

    play["now"] = parts
    bench.pool()
    code, done = bench.judge("one")
    assert code == 0 and done["abstentions"] == 0 and bench.server.total == 4
    assert all(vote.grade == TEXTS[vote.passage_id][-1] for vote in bench.votes().values())


def test_a_refusal_in_words_costs_one_call_and_can_be_asked_again(bench, play):
    play["now"] = lambda _: "抱歉，我无法对医疗内容进行评价。"
    bench.pool()
    code, done = bench.judge("one")
    assert code == 0 and done["kinds"] == {"refused": 20} and bench.server.total == 4
    assert "抱歉" in bench.votes()["q1", "p0", "one"].reason
    # The same request again, and the answer that is kept is not taken for a new one.
    play["now"] = judges(by_mark)
    assert bench.judge("one")[1]["votes"] == 0 and bench.server.total == 4
    code, done = bench.judge("one", retry_abstained="")
    assert code == 0 and done["votes"] == 20 and done["abstentions"] == 0 and bench.server.total == 8
    assert bench.judge("one", retry_abstained="")[1]["votes"] == 0


@pytest.mark.parametrize(
    ("say", "kind"),
    [
        (lambda _: "", "empty"),
        (lambda _: "<think>hm</think>", "empty"),
        (lambda _: "P1 is good", "malformed"),
        (lambda body: judges(lambda *_: "A+")(body), "malformed"),
        (lambda _: Says('{"P1": {"gr', "length"), "cut"),
        (lambda _: Says("", refusal="no"), "refused"),
        (lambda _: Says("", finish="content_filter"), "refused"),
    ],
)
def test_abstentions_have_kinds(bench, play, say, kind):
    play["now"] = say
    bench.pool()
    code, done = bench.judge("one")
    assert code == 0 and done["kinds"] == {kind: 20} and {v.abstained for v in bench.votes().values()} == {kind}


def test_a_judge_that_has_not_finished_wipes_no_label(bench):
    bench.pool()
    bench.judge("one", "two")
    bench("consensus", "work")
    before = labels()
    assert set(before.values()) == {"positive", "negative"}
    assert bench.judge("three", calls=1)[0] == 3
    code, done = bench("consensus", "work")
    assert code == 0 and labels() == before and done["jury"] == ["one", "two"]
    assert done["left_out"]["judges"] == {"three": 5} and done["left_out"]["pairs"] == 20
    said = bench.suwen("jury", "consensus", "work").out.replace("\n", " ")
    assert "three has voted on 5 of 20 pairs and was left out" in said and "--include-incomplete" in said
    code, found = bench("report", "work")
    assert list(found["judges"]) == ["one", "two"] and "three has voted on 5 of 20 pairs" in page()
    code, done = bench("consensus", "work", "--include-incomplete")
    assert code == 0 and done["jury"] == ["one", "two", "three"] and done["undecided"] == 15
    code, told = bench("consensus", "work", "--jury", "three")
    assert code != 0 and "--include-incomplete" in told
    assert bench.judge("three")[0] == 0
    assert bench("consensus", "work")[1]["jury"] == ["one", "two", "three"] and labels() == before


def test_no_judge_that_has_finished_is_told(bench):
    bench.pool()
    bench.judge("one", calls=1)
    code, told = bench("consensus", "work")
    assert code != 0 and "of 20 pairs in the pool one 5" in told and "--include-incomplete" in told
    assert bench("consensus", "work", "--include-incomplete")[0] == 0 and len(labels()) == 5


def test_a_second_process_in_the_folder_is_refused_and_pays_nothing(bench, play):
    arrived, hold = threading.Event(), threading.Event()

    def slow(body):
        arrived.set()
        hold.wait(300)
        return judges(by_mark)(body)

    play["now"] = slow
    bench.pool()
    command = [sys.executable, "-c", RUN, "jury", "judge", "work", "-j", "one", "--batch", "5"]
    child = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(SOURCE)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert arrived.wait(300)
        code, told = bench.judge("two")
        assert code == 1 and f"process {child.pid}" in told
        assert not any('"model": "two"' in call for call in bench.server.calls)
        assert bench("judge", "work", "-j", "two", "--dry-run")[0] == 0
    finally:
        hold.set()
    assert child.wait(300) == 0
    assert bench.judge("two")[0] == 0


def test_requests_refused_alike_end_the_run_with_what_was_said(bench, monkeypatch):
    bench.pool()
    bench.server.trouble = lambda *_: Fault("status", 400, body="temperature does not support 0")
    code, told = bench.judge("one")
    assert code == 1 and "temperature does not support 0" in told and bench.server.total <= 4
    bench.server.trouble = None
    assert bench.judge("one")[0] == 0


def test_a_server_that_bills_ten_times_the_estimate_stays_within_the_budget(bench, play):
    play["now"] = lambda body: Says(judges(by_mark)(body), billed=(1000, 6000))
    bench.pool()
    code, done = bench.judge("one", "two", "three", tokens=30_000)
    assert code == 3 and "budget" in done["stopped"]
    spent = done["spent"]["tokens_in"] + done["spent"]["tokens_out"]
    assert spent == bench.server.total * 7000 <= 30_000


def test_calls_cut_off_by_a_kill_are_told_in_the_next_run(bench, play):
    arrived, hold = threading.Event(), threading.Event()

    def slow(body):
        arrived.set()
        hold.wait(300)
        return judges(by_mark)(body)

    play["now"] = slow
    bench.pool()
    command = [sys.executable, "-c", RUN, "jury", "judge", "work", "-j", "one", "--batch", "5"]
    child = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(SOURCE)}, stderr=subprocess.DEVNULL)
    assert arrived.wait(300)
    child.kill()
    child.wait()
    hold.set()
    play["now"] = judges(by_mark)
    done = bench.suwen("jury", "judge", "work", "-j", "one", "--batch", 5)
    assert done.code == 0 and "cut off before their end" in done.err and "may have cost up to" in done.err
    _, found = bench("report", "work")
    assert found["ledger"][0]["unknown"] >= 1 and "cut off (cost at most)" in page()
