"""Synthetic rows against a real server: both levels, bad replies, copies, resumption, the dry run; then the filters."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "retrieve"))

from server import Fault, Server, burst
from small_pair import NOTES, make_static_pair

from suwen.corpora.records import Document
from suwen.corpora.training_rows import TrainingRow, read_training_rows, write_training_rows
from suwen.curate import CurateError
from suwen.curate.leakage import HeldOut
from suwen.curate.row_files import round_trip_file, sample_rows
from suwen.curate.screening import Screen
from suwen.curate.synthesise import INSTRUCTIONS, synthesise_rows
from suwen.encoders.pair import Pair
from suwen.jury.jury_folder import JuryFolder
from suwen.jury.review import Reviews, review_report, review_rows
from suwen.jury.review_page import ReviewPage, guidelines_of
from suwen.jury.sampling import read_sample
from suwen.llm.asker import Unfinished
from suwen.retrieve.retriever import Index

DRUGS = ("ibuprofen", "aspirin", "metformin", "warfarin", "amoxicillin", "omeprazole")
TEXTS = {drug: f"The tablet {drug} is taken after a meal. Its dose is lowered in renal failure." for drug in DRUGS}
WORDS = ("heart", "lung", "liver", "kidney", "blood", "bone", "skin", "brain", "nerve", "virus", "fever", "rash")


def query(body: dict[str, Any]) -> str:
    """A model that asks about the drug of the passage, but for some that make it misbehave."""
    passage = body["messages"][1]["content"].partition("Passage:\n")[2]
    drug = next(drug for drug in DRUGS if drug in passage)
    if drug == "aspirin":
        return "I would rather not."
    if drug == "metformin":
        return json.dumps({"query": "Its dose is lowered in renal failure."})
    if drug in ("warfarin", "amoxicillin"):
        return json.dumps({"query": "Which tablet goes with meals?"})
    return json.dumps({"query": f"How do I take {drug}?"})


def example(body: dict[str, Any]) -> str:
    """A model that thinks of tasks, one of the prompt's and one twice, and writes their examples."""
    content = body["messages"][1]["content"]
    if "Search task:" not in content:
        drawn = re.search(r"above all of (.+?) and of\s+(.+?), though", content)[0]
        tasks = [f"Given a {word}, find {hashlib.sha1((drawn + word).encode()).hexdigest()}" for word in WORDS]
        own = next(line for line in content.splitlines() if line.startswith("Given a patient"))
        return json.dumps({"tasks": [own, *tasks, f"{tasks[-1]} !"]})
    task = re.search("Search task: (.+)", content)[1]
    passage = f"A passage that serves the search: {task}"
    other = f"{passage}, again" if "lung" in task else "Another passage, that does not."
    query = "the words this person would really type" if "Given a rash" in task else f"a search {task[-30:]}"
    return json.dumps({"query": query, "positive": passage, "negative": other})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    lines = (json.dumps({"_id": drug, "text": text}) + "\n" for drug, text in TEXTS.items())
    (tmp_path / "source.jsonl").write_text("".join(lines), encoding="utf-8")
    return tmp_path / "source.jsonl"


def rows_of(path: Path) -> list[TrainingRow]:
    return list(read_training_rows(path))


def test_a_query_is_written_for_each_passage_and_bad_ones_are_counted(ask: Any, tmp_path: Path, source: Path) -> None:
    out = tmp_path / "rows.jsonl"
    with Server(query) as server:
        asker = ask(server.url, language="en")
        counts = synthesise_rows(out, asker, source=source, dataset="PubMed")
    assert {row.query: row.pos for row in rows_of(out)} == {
        "How do I take ibuprofen?": (TEXTS["ibuprofen"],),
        "Which tablet goes with meals?": (TEXTS["warfarin"],),
        "How do I take omeprazole?": (TEXTS["omeprazole"],),
    }
    assert {row.prompt for row in rows_of(out)} == {INSTRUCTIONS["pubmed"]}
    wanted = {"passages": 6, "unanswered": 1, "copied_from_the_passage": 1, "repeated": 1, "rows": 3}
    assert counts | wanted == counts and asker.failed == 1
    assert "PubMed" in server.log[0][1]["messages"][1]["content"]


def test_replies_that_came_right_when_asked_again_are_counted(ask: Any, tmp_path: Path, source: Path) -> None:
    """The first reply about every drug is no JSON; that about aspirin never is."""

    def play(body: dict[str, Any]) -> str:
        return query(body) if len(body["messages"]) > 2 else "Here it is!"

    made = {"source": source, "dataset": "pubmed"}
    with Server(play) as server:
        for _ in ("asked", "kept"):
            asker = ask(server.url, language="en")
            synthesise_rows(tmp_path / "rows.jsonl", asker, **made)
            assert (asker.steps["queries"].repaired, asker.failed) == (5, 1)
        assert server.total == 12


METFORMIN = "Metformin is the first drug that is given in type 2 diabetes, unless the kidneys fail."
MIGRAINE = "偏头痛发作时应尽早服用曲普坦类药物，并避免过量使用止痛药，以免引起药物过量性头痛。"


@pytest.mark.parametrize(
    ("passage", "asked", "copied"),
    [
        (METFORMIN, METFORMIN.replace("kidneys", "lungs"), True),
        (METFORMIN, "the first drug that is given", True),
        (METFORMIN, "type 2 diabetes", False),
        (METFORMIN, "metformin, first drug", False),
        (METFORMIN, "What is the first drug for somebody with type 2 diabetes?", False),
        (MIGRAINE, MIGRAINE.replace("尽早", "随时"), True),
        (MIGRAINE, "偏头痛发作时应尽早服用曲普坦类药物吗？", True),
        (MIGRAINE, "药物过量性头痛", False),
        (MIGRAINE, "偏头痛发作时吃什么药比较好？", False),
    ],
)
def test_a_query_that_is_nearly_a_piece_of_its_passage_is_a_copy_and_keywords_are_not(
    passage: str, asked: str, copied: bool
) -> None:
    screen = Screen(by_model=True)
    assert (screen.passed(TrainingRow(asked, (passage * 2,))) is None) is copied
    assert screen.counts["copied_from_the_passage"] == copied


def test_long_documents_are_cut_into_passages_and_a_draw_is_seeded(ask: Any, tmp_path: Path) -> None:
    long = " ".join(f"Sentence {number} on {DRUGS[number % 6]} differs from all the others." for number in range(60))
    (tmp_path / "long.jsonl").write_text(json.dumps({"title": "T", "text": long}) + "\n", encoding="utf-8")

    def play(body: dict[str, Any]) -> str:
        first = re.search(r"Sentence (\d+)", body["messages"][1]["content"])[1]
        return json.dumps({"query": f"what of number {first}"})

    with Server(play) as server:
        made = {"source": tmp_path / "long.jsonl", "dataset": "notes", "instruction": "Find it", "size": 100}
        every = synthesise_rows(tmp_path / "all.jsonl", ask(server.url, language="en"), **made)
        asked = server.total
        some = synthesise_rows(tmp_path / "some.jsonl", ask(server.url, language="en"), **made, count=3, seed=1)
    assert every["passages"] > 8 and some["passages"] == 3
    assert set(rows_of(tmp_path / "some.jsonl")) < set(rows_of(tmp_path / "all.jsonl")) and server.total == asked


def test_tasks_are_thought_of_and_get_an_example_each(ask: Any, tmp_path: Path) -> None:
    with Server(example) as server:
        asker = ask(server.url, language="en")
        counts = synthesise_rows(tmp_path / "rows.jsonl", asker, tasks=30, seed=2)
    rows = rows_of(tmp_path / "rows.jsonl")
    assert counts["tasks"] == 30 == len({row.prompt for row in rows}) + counts["copied_from_the_prompt"]
    assert counts["tasks_repeated"] >= 4 and 1 <= counts["copied_from_the_prompt"] <= 3
    assert not any(row.prompt.startswith("Given a patient") or "really type" in row.query for row in rows)
    assert all(row.prompt.startswith("Given a ") and row.prompt in row.pos[0] for row in rows)
    without = [row for row in rows if not row.neg]
    assert counts["negative_is_a_positive"] == len(without) > 0 and all("lung" in row.prompt for row in without)
    examples = [body["messages"][1]["content"] for _, body, _ in server.log if "Search task:" in str(body)]
    assert len({re.search(r"let them be (.+?), with (.+?), and", text).groups() for text in examples}) > 3


def test_many_tasks_of_a_model_that_says_the_same_to_the_same(ask: Any, tmp_path: Path) -> None:
    """It has one new task for a prompt, and takes up nothing it is told: prompts must differ from call to call."""

    def play(body: dict[str, Any]) -> str:
        content = body["messages"][1]["content"]
        if "Search task:" in content:
            return example(body)
        return json.dumps({"tasks": [f"Given a {hashlib.sha1(content.encode()).hexdigest()}, find it."]})

    with Server(play) as server:
        counts = synthesise_rows(tmp_path / "rows.jsonl", ask(server.url, language="en"), tasks=40)
        assert counts["tasks"] == counts["tasks_asked_for"] == 40 and counts["tasks_repeated"] == 0
        thought = [body for _, body, _ in server.log if "Search task:" not in str(body)]
        assert len({body["messages"][1]["content"] for body in thought}) == len(thought)
        assert {body["temperature"] for body in thought} == {1.0}
        settings = {"temperature": 0.3}
        synthesise_rows(tmp_path / "x.jsonl", ask(server.url, language="en", settings=settings), tasks=1, seed=1)
        assert server.log[-2][1]["temperature"] == 0.3, "the user's own"


def test_what_is_wrong_with_tasks_is_counted_and_the_rest_is_kept(ask: Any, tmp_path: Path) -> None:
    """A model that knows 8 tasks and no ninth; two of each call's are not of the form, and its first call fails."""
    calls = []

    def play(body: dict[str, Any]) -> str:
        if "Search task:" in str(body):
            return json.dumps({"query": "a search", "positive": "word " * 400, "negative": "A passage, too short."})
        calls.append(body)
        if len(body["messages"]) > 2 or calls.index(body) == 0:
            return "I would rather not."
        good = [f"Given a {word} {word}, find {word}s." for word in WORDS[:8]]
        return json.dumps({"tasks": ["Find it!", *good, "Hm"]})

    with Server(play) as server:
        asker = ask(server.url, language="en")
        counts = synthesise_rows(tmp_path / "rows.jsonl", asker, tasks=40)
    assert (counts["tasks_asked_for"], counts["tasks"]) == (40, 8)
    assert counts["calls_for_tasks_unanswered"] == asker.failed == 1
    assert counts["rows"] + counts["repeated"] == counts["tasks"], "no example is counted with that call"
    assert counts["tasks_malformed"] == 2 * (len(calls) - 2), "two calls were the one that failed, and its repair"
    assert counts["passages_too_short"] == 8
    assert len(calls) == 3 + 3 * 2, "three more rounds of two"


def test_a_document_without_a_text_is_counted_with_the_reason(ask: Any, tmp_path: Path, source: Path) -> None:
    with source.open("a", encoding="utf-8") as file:
        file.write('{"_id": "other", "summary": "Gout."}\n{"_id": "empty", "text": ""}\n')
    out, told, more = tmp_path / "r.jsonl", list[str](), {"dataset": "pubmed"}
    with Server(query) as server:
        asker = ask(server.url, language="en")
        counts = synthesise_rows(out, asker, source=source, tell=told.append, **more)
        assert (counts["unreadable"], counts["passages"], counts["rows"]) == (2, 6, 3)
        assert len(told) == 1 and told[0].endswith("here are: _id, summary; call the one that is meant text")
        source.write_text('{"_id": "other", "summary": "Gout."}\n', encoding="utf-8")
        with pytest.raises(CurateError, match=r"no row is left .*: 1 unreadable.* here are: _id, summary; call"):
            synthesise_rows(out, asker, source=source, **more)


@pytest.mark.parametrize("language", ["zh", "en"])
def test_the_most_that_is_asked_is_known_before(ask: Any, tmp_path: Path, source: Path, language: str) -> None:
    with Server(query) as server:
        asker = ask(server.url, language=language, dry_run=True)
        synthesise_rows(tmp_path / "rows.jsonl", asker, source=source, dataset="pubmed")
        synthesise_rows(tmp_path / "rows.jsonl", asker, tasks=45)
    assert {name: step.calls for name, step in asker.steps.items()} == {"queries": 6, "tasks": 3, "examples": 45}
    assert server.total == 0 and not (tmp_path / "rows.jsonl").exists()


def test_a_stopped_run_goes_on_and_asks_nothing_twice(ask: Any, tmp_path: Path, source: Path) -> None:
    def good(body: dict[str, Any]) -> str:
        return json.dumps({"query": f"how is {next(drug for drug in DRUGS if drug in str(body))} taken"})

    out, made = tmp_path / "rows.jsonl", {"source": source, "dataset": "meadow"}
    with Server(good, burst(Fault(500), 2)) as server:
        with pytest.raises(Unfinished, match="budget"):
            synthesise_rows(out, ask(server.url, language="en", calls=3), **made)
        assert not out.exists()
        counts = synthesise_rows(out, ask(server.url, language="en", attempts=9), **made)
    assert counts["rows"] == 6 and all(count == 1 for count in server.answered.values())
    assert rows_of(out)[0].prompt.startswith("Given a query on COVID-19")


def test_held_out_texts_and_what_is_not_said(ask: Any, tmp_path: Path, source: Path) -> None:
    with Server(query) as server:
        asker = ask(server.url, language="en")
        held = HeldOut(["how do i take ibuprofen"])
        counts = synthesise_rows(tmp_path / "r.jsonl", asker, source=source, dataset="pubmed", held_out=held)
        assert counts["held_out"] == 1 and counts["rows"] == 2
        for wrong in ({}, {"source": source, "dataset": "pubmed", "tasks": 3}):
            with pytest.raises(CurateError, match="one of the two"):
                synthesise_rows(tmp_path / "x.jsonl", asker, **wrong)
        with pytest.raises(CurateError, match="no instruction for the data set 'notes'"):
            synthesise_rows(tmp_path / "x.jsonl", asker, source=source, dataset="notes")


def test_nonsense_alone_writes_nothing(ask: Any, tmp_path: Path, source: Path) -> None:
    with Server(lambda _: "nonsense") as server, pytest.raises(CurateError, match="6 unanswered"):
        synthesise_rows(tmp_path / "rows.jsonl", ask(server.url), source=source, dataset="pubmed")
    assert not (tmp_path / "rows.jsonl").exists()


@pytest.mark.parametrize("mode", ["lexical", "dense"])
def test_a_pair_stays_where_its_passage_is_found_again(tmp_path: Path, mode: Any) -> None:
    pair = Pair.load(make_static_pair(tmp_path / "pair"))
    texts = {id_: text for id_, _, text, _ in NOTES}
    long = texts["bp"] + "".join(f"第{number}条与此无关，请另行查阅。" for number in range(80))
    rows = [
        TrainingRow("尿酸结石怎么预防复发", (texts["stone"],), ("不是",), "找", pos_scores=(0.5,)),
        TrainingRow("流感疫苗什么时候接种", (texts["bone"],), (), "找"),
        TrainingRow("低盐饮食，早晚测量血压", (long,), (), "找"),
        TrainingRow("骨折愈合要多久", ("索引里没有的一段文字。",), (), "找"),
        TrainingRow("尿酸结石怎么预防复发", (texts["stone"][2:-4],), (), "a piece of what the index holds"),
    ]
    write_training_rows(tmp_path / "rows.jsonl", rows)
    with Index.create(tmp_path / "index", pair=pair) as index:
        index.add([Document(id_, long if id_ == "bp" else text) for id_, text in texts.items()])
        assert index.stats().passages > len(NOTES), "the long one is cut"
        counts = round_trip_file(tmp_path / "rows.jsonl", index, tmp_path / "kept.jsonl", top=1, mode=mode)
    assert rows_of(tmp_path / "kept.jsonl") == [rows[0], rows[2], rows[4]]
    assert counts == {"read": 5, "kept": 3, "passage_not_found": 2}


def test_a_name_in_the_index_is_no_piece_of_a_passage(tmp_path: Path) -> None:
    pair = Pair.load(make_static_pair(tmp_path / "pair"))
    rows = [
        TrainingRow("痛风 diabetes", ("Insulin is given in diabetes.",), ()),
        TrainingRow("痛风 diabetes", ("痛风是一种关节病。",), ()),
        TrainingRow("痛风 diabetes", ("Diabetes!",), ()),
    ]
    write_training_rows(tmp_path / "rows.jsonl", rows)
    write_training_rows(tmp_path / "none.jsonl", rows[:2])
    with Index.create(tmp_path / "index", pair=pair) as index:
        index.add([Document("1", "diabetes"), Document("2", "痛风")])
        counts = round_trip_file(tmp_path / "rows.jsonl", index, tmp_path / "kept.jsonl", mode="lexical")
        assert (counts["kept"], counts["passage_not_found"]) == (1, 2)
        assert rows_of(tmp_path / "kept.jsonl") == rows[2:]
        with pytest.raises(CurateError, match="no query finds its passage again"):
            round_trip_file(tmp_path / "none.jsonl", index, tmp_path / "no.jsonl", mode="lexical")
    assert not (tmp_path / "no.jsonl").exists()


def test_rows_are_drawn_for_people_to_check_on_the_review_page(tmp_path: Path) -> None:
    rows = [TrainingRow(f"query {number}", (f"passage {number}", "another"), (), "Find it") for number in range(50)]
    write_training_rows(tmp_path / "rows.jsonl", rows)
    folder = JuryFolder(tmp_path / "check")
    assert sample_rows(tmp_path / "rows.jsonl", folder, 20, seed=1) == 20
    sample = read_sample(folder.sample)
    assert (
        all(one.query == f"Find it\n{one.passage.replace('passage', 'query')}" for one in sample)
        and folder.sheet.is_file()
    )
    with Reviews(folder.reviews) as reviews:
        page = ReviewPage(sample, reviews)
        shown = json.loads(page.respond("GET", "/api/pair?reviewer=li", {"host": "localhost"}).body)
        assert shown["total"] == 20 and shown["query"].startswith("Find it\nquery ")
        assert guidelines_of(folder).startswith("# Is what the passage says right? 这段资料说的对吗？\n")
        for number, one in enumerate(sample):
            reviews.add(one.pair, "li", "negative" if number < 5 else "positive")
        found = review_report(sample, reviews)
    assert found.overall[:2] == (15, 20)
    # No jury had a say in these rows, and none is spoken of.
    assert review_rows(found) == [
        ("rows judged", ["15 of 20", "75.0%", "[53.1%, 88.8%]"]),
        ("reviewer li", ["15 of 20", "75.0%", "[53.1%, 88.8%]"]),
    ]
    assert found.summary() == "20 of 20 sampled rows judged, 0 unsure or tied."
    with pytest.raises(CurateError, match="labels refer to it"):
        sample_rows(tmp_path / "rows.jsonl", folder, 20)
