"""``suwen jury`` with other people's tools: runs, annotators' sheets, TREC's qrels, rankings of systems."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

# Tests are imported by file (import-mode=importlib), so a neighbour is not on the path.
sys.path.insert(0, str(Path(__file__).parent))
from jury_bench import TEXTS, bench, labels, play

sys.path.insert(0, str(Path(__file__).parents[1] / "jury"))
from court import judges

from suwen.jury.votes import Votes

__all__ = ["bench", "play"]


def filled(source: str, to: str, grades, **more: str) -> None:
    """A sheet as an annotator fills it in: what ``grades`` says of a passage's id."""
    with Path(source).open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["grade"] = grades(row["passage_id"]) or ""
        row |= more
    with Path(to).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def by_letter(passage: str) -> str:
    return TEXTS[passage][-1]


def test_a_pool_of_other_peoples_runs(bench):
    Path("a.trec").write_text("q1 Q0 p3 1 9.5 x\nq1 Q0 p4 2 9.0 x\nq2 Q0 p1 1 3 x\n")
    Path("b.json").write_text(json.dumps({"q1": {"p4": 1.0, "p5": 2.0}, "q2": {"p9": 0.5}}))
    Path("c.tsv").write_text("q1\tp7\t1\nq1\tp8\t2\n")
    runs = ["--run", "theirs=a.trec", "--run", "b.json", "--run", "c.tsv"]
    code, pooled = bench("pool", "collection", "work", *runs, "--depth", 1)
    assert code == 0 and pooled["pairs"] == 5 and not Path("work/index").exists()
    lines = [json.loads(line) for line in Path("work/pool.jsonl").read_text().splitlines()]
    found = {(one["query_id"], c["passage_id"]): c["found"][0] for one in lines for c in one["candidates"]}
    assert {pair: by["retriever"] for pair, by in found.items()} == {
        ("q1", "p3"): "theirs", ("q1", "p5"): "b", ("q1", "p7"): "c", ("q2", "p1"): "theirs", ("q2", "p9"): "b",
    }  # fmt: skip
    assert found["q1", "p3"]["rank"] == 1 and found["q1", "p3"]["score"] == 9.5
    code, both = bench("pool", "collection", "both", *runs, "--with", "dense", "--depth", 2)
    assert code == 0 and both["alone"].keys() == {"theirs", "b", "c", "dense"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("q1 Q0 p3 1 x y\n", "no number"),
        ("q1 Q0 p3 1\n", "columns"),
        ("q1 Q0 p3 1 2 x\nq1 Q0 p3 2 1 x\n", "twice"),
        ("q1 Q0 nowhere 1 2 x\n", "not in the collection"),
        ("other Q0 p3 1 2 x\n", "runs of these queries"),
        ("", "empty"),
    ],
)
def test_a_bad_run_is_told_and_the_pool_that_is_there_stays(bench, text, words):
    bench.pool()
    before = Path("work/pool.jsonl").read_bytes()
    Path("bad.run").write_text(text)
    code, told = bench("pool", "collection", "work", "--run", "bad.run")
    assert code == 1 and words in told and Path("work/pool.jsonl").read_bytes() == before


def test_annotators_vote_from_a_sheet(bench):
    bench.pool()
    assert bench("sheet", "work", "sheet.csv")[1]["pairs"] == 20
    filled("sheet.csv", "wang.csv", lambda passage: by_letter(passage) if passage != "p9" else None)
    code, done = bench("import", "work", "wang.csv", "--annotator", "wang")
    assert code == 0 and done == {"new": {"wang": 18}, "without_a_grade": 2}
    numbers = {"S": "3", "A": "２", "D": "0", "C": "d级"}
    filled("sheet.csv", "li.csv", lambda passage: numbers[by_letter(passage)], annotator="li")
    assert bench("import", "work", "li.csv")[1]["new"] == {"li": 20}
    # Wang has not finished; with the rest of the sheet both count.
    code, done = bench("consensus", "work")
    assert code == 0 and done["jury"] == ["li"] and done["left_out"]["judges"] == {"wang": 18}
    filled("sheet.csv", "wang.csv", lambda passage: "?" if passage == "p9" else by_letter(passage))
    assert bench("import", "work", "wang.csv", "--annotator", "wang")[1]["new"] == {"wang": 2}
    code, done = bench("consensus", "work")
    assert done["jury"] == ["wang", "li"] and done["undecided"] == 2 and labels()["q1", "p0"] == "positive"
    # Minds change: the last word counts, the one before is kept.
    filled(
        "sheet.csv",
        "wang.csv",
        lambda passage: "D" if passage == "p0" else "?" if passage == "p9" else by_letter(passage),
    )
    assert bench("import", "work", "wang.csv", "--annotator", "wang")[1]["new"] == {"wang": 2}
    bench("consensus", "work")
    assert labels()["q1", "p0"] == "undecided"
    with Votes("work/votes.db") as votes:
        assert [v.grade for v in votes.superseded()] == ["S", "S"]
        assert {v.model for v in votes} == {"human"}
    # Beside a model, in the same report.
    bench.judge("one")
    code, found = bench("report", "work")
    assert code == 0 and set(found["judges"]) == {"wang", "li", "one"} and found["agreement"]["weighted"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"grade": "E"}, "no grade"),
        ({"passage_id": "nowhere"}, "not in the pool"),
        ({"passage": "something else"}, "not the text that is in the pool now"),
        ({"annotator": ""}, "who graded this"),
    ],
)
def test_a_sheet_with_an_error_gives_nothing(bench, change, words):
    bench.pool()
    bench("sheet", "work", "sheet.csv")
    filled("sheet.csv", "bad.csv", by_letter, annotator="li")
    with Path("bad.csv").open(encoding="utf-8", newline="") as file:
        text = list(csv.DictReader(file))
    text[7] |= change
    with Path("bad.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, text[0])
        writer.writeheader()
        writer.writerows(text)
    code, told = bench("import", "work", "bad.csv")
    assert code == 1 and words in told and "bad.csv:9" in told
    with Votes("work/votes.db") as votes:
        assert len(votes) == 0


def test_qrels_are_binary_or_graded(bench, play):
    other = {"S": "A", "A": "A", "D": "B", "C": "D"}
    grade = lambda model, _, passage: passage[-1] if model == "one" else other[passage[-1]]  # noqa: E731
    play["now"] = judges(grade)
    bench.pool()
    bench.judge("one", "two", "three")
    bench("consensus", "work")
    assert bench("qrels", "work", "binary.txt")[1]["judgements"] == 20
    bench("qrels", "work", "graded.txt", "--graded")
    binary, graded = (
        {tuple(line.split()[::2]): int(line.split()[3]) for line in Path(name).read_text().splitlines()}
        for name in ("binary.txt", "graded.txt")
    )
    assert {binary["q1", f"p{n}"] for n in (0, 1)} == {1} and binary["q1", "p2"] == 0
    # The lower median of S A A is A; of D B B it is B, of C D D nothing.
    assert (graded["q1", "p0"], graded["q1", "p1"], graded["q1", "p2"], graded["q1", "p4"]) == (2, 2, 1, 0)
    assert all((graded[pair] >= 2) == bool(binary[pair]) for pair in binary)
    done = bench.suwen("curate", "assemble", "collection", "work/verdicts.jsonl", "made", "--json")
    assert done.code == 0
    lines = Path("made/retrieval/qrels/graded.tsv").read_text().splitlines()[1:]
    assert {tuple(line.split("\t")[:2]): int(line.split("\t")[2]) for line in lines} == graded


def test_systems_are_ranked_under_both_labels(bench):
    bench.pool()
    bench.judge("one")
    bench("consensus", "work")
    bench("review", "sample", "work", "--size", 20)
    # p0, p1, p5, p6 are the jury's positives; the expert holds the fifth and sixth for answers, not the first two.
    with Path("work/review/sample.jsonl").open() as file:
        pairs = {one["pair"]: one["passage_id"] for one in map(json.loads, file)}
    lines = ["pair,label", *(f"{pair},{int(id_ in ('p5', 'p6'))}" for pair, id_ in pairs.items())]
    Path("labels.csv").write_text("\n".join(lines))
    bench("review", "import", "work", "labels.csv", "--reviewer", "li")
    orders = {"good": "p5 p6 p0 p1", "first": "p0 p1 p2 p3", "bad": "p2 p3 p4 p9 p0"}
    for name, order in orders.items():
        hits = [f"{q} Q0 {id_} {n} {9 - n} x" for q in ("q1", "q2") for n, id_ in enumerate(order.split())]
        Path(f"{name}.run").write_text("\n".join(hits))
    runs = [part for name in orders for part in ("--run", f"{name}.run")]
    code, found = bench("systems", "work", *runs)
    assert code == 0 and found["pairs"] == 20 and [one["name"] for one in found["systems"]] == ["good", "first", "bad"]
    scores = {one["name"]: (one["jury"], one["experts"]) for one in found["systems"]}
    assert scores["good"] == (1.0, 1.0) and scores["first"][1] == scores["bad"][1] == 0.0
    # Two of three pairs of systems stand the same way round, the third is tied: tau-b is 2 / sqrt(3 * 2).
    assert found["tau"] == pytest.approx(2 / 6**0.5)
    Path("theirs.qrels").write_text("".join(f"q1 0 {id_} {3 * (id_ in ('p2', 'p3'))}\n" for id_ in TEXTS))
    code, other = bench("systems", "work", *runs, "--qrels", "theirs.qrels")
    assert code == 0 and other["pairs"] == 10 and other["tau"] < 0
    said = bench.suwen("jury", "systems", "work", *runs)
    assert "Kendall's tau 0.816" in said.out
    assert bench("systems", "work", "--run", "good.run")[0] == 1
