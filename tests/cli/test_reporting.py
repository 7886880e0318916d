from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from reported import PAIR, run_both


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run_both(tmp_path_factory.mktemp("reporting"))


def test_compare_prints_a_table_and_the_queries(suwen, results):
    done = suwen("bench", "compare", results, "--a", PAIR, "--b", "bm25:words")
    assert done.code == 0
    assert "MedExam" in done.out and "ndcg@10: nDCG with linear gain" in done.out
    assert "paired t-test" in done.out and " won +" in done.out and "a found" in done.out
    few = suwen("bench", "compare", results, "--a", PAIR, "--b", "bm25:words", "--most", 0)
    assert "a found" not in few.out


def test_compare_as_json(suwen, results):
    done = suwen("bench", "compare", results, "--a", PAIR, "--b", "bm25:words", "--metric", "recall@100", "--json")
    assert done.code == 0 and done.err == ""
    assert {task["metric"] for task in done.json["tasks"]} == {"recall@100"}
    assert {task["suite"] for task in done.json["tasks"]} == {"mine", "cmirb"}


def test_an_unknown_system_is_told_with_those_there_are(suwen, results):
    done = suwen("bench", "compare", results, "--a", "nobody", "--b", "bm25:words")
    assert done.code == 1 and "name one of: bm25:words, pair:" in done.err


def test_report_says_where_the_page_is(suwen, results, tmp_path):
    (tmp_path / "run.csv").write_text("step,loss\n0,2\n1,1\n")
    done = suwen("bench", "report", results, "--to", tmp_path / "page", "--curves", tmp_path / "run.csv")
    assert done.code == 0 and str(tmp_path / "page" / "index.html") in done.out
    assert "Training curves" in (tmp_path / "page" / "index.html").read_text(encoding="utf-8")


def test_report_as_json(suwen, results, tmp_path):
    done = suwen("bench", "report", results, "--to", tmp_path / "page", "--json")
    assert done.json["notices"] == [] and Path(done.json["page"]).is_file()
    assert all(Path(plot).is_file() for plot in done.json["plots"]) and len(done.json["plots"]) == 12


def test_nothing_to_report_on(suwen, tmp_path):
    done = suwen("bench", "report", tmp_path, "--to", tmp_path / "page")
    assert done.code == 1 and "suwen bench run" in done.err


def test_ranks_of_a_published_table_are_what_the_paper_prints(suwen):
    done = suwen("bench", "ranks", "care:11", "--column", "Avg CMed", "--column", "Avg New")
    assert done.code == 0
    assert "Avg CMed and Avg New: Spearman 0.354 (p 0.215), Kendall 0.209" in done.out and "14 systems" in done.out


def test_ranks_of_results_as_json(suwen, results):
    done = suwen("bench", "ranks", results, "--json")
    assert done.code == 0 and {one["systems"] for one in done.json} == {3}
    assert {"mine/小集-test", "cmirb/MedExamRetrieval"} <= {
        one[side] for one in done.json for side in ("first", "second")
    }


def test_ranks_that_cannot_be_had_say_why(suwen, tmp_path):
    done = suwen("bench", "ranks", "care:11", "--column", "Avg Old")
    assert done.code == 1 and "no column 'Avg Old' in care:11; there are: Param., CMedv1" in done.err
    assert "Table 6 of 'care' is not transcribed" in suwen("bench", "ranks", "care:6").err
    assert "run more systems" in suwen("bench", "ranks", tmp_path).out
