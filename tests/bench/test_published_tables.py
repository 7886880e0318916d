from __future__ import annotations

import shutil
from decimal import Decimal

import numpy as np
import pytest

from suwen.bench import published_tables
from suwen.bench.published_tables import (
    Check,
    Figure,
    PublishedError,
    discrepancies,
    mismatches,
    published,
    recompute,
    tables,
)
from suwen.bench.retrieval_metrics import spearman

# How many cells each printed table holds, dashes left out; counted in the papers.
CELLS = {
    ("care", 2): 13 * 8,
    ("care", 3): 5 * 6,
    ("care", 4): 7 * 3,
    ("care", 5): 4 * 3,
    ("care", 7): 3 * 4 + 4 * 5 + 3,
    ("care", 11): 14 * 8 + 7 + 2,
    ("care", 15): 3 * 3,
    ("care", 16): 3,
    ("care", 17): 4 * 5,
    ("care", 18): 3 * 2 + 1,
    ("care", 19): 2 * 3,
    ("care", 20): 2 * 4,
    ("automir", 1): 10 * 4,
    ("automir", 2): 13 * 11,
    ("automir", 3): 6 * 6,
    ("automir", 4): 6 * 6,
    ("automir", 5): 4 * 6,
    ("automir", 6): 4 * 6,
    ("automir", 8): 3 * 4,
    ("automir", 12): 9 * 11,
    ("automir", 13): 12 * 11,
    ("bmretriever", 2): 27 * 10 - 29,
    ("bmretriever", 3): 10 * 17,
    ("bmretriever", 4): 9 * 8 - 2,
    ("bmretriever", 5): 4 * 3,
    ("bmretriever", 11): 8 * 3,
    ("cardioembed", 1): 5 * 3,
    ("cardioembed", 2): 3,
}


def cell(paper: str, table: int, row: str, column: str) -> Figure:
    (figure,) = [f for f in published(paper, table) if (f.row, f.column) == (row, column)]
    return figure


def test_every_table_is_there_whole():
    assert {table: len(published(*table)) for table in tables()} == CELLS


def test_a_cell_stands_once_and_says_what_it_is():
    for table in tables():
        figures = published(*table)
        assert len({(f.row, f.column) for f in figures}) == len(figures), table
        assert all((f.paper, f.table) == table for f in figures)
        assert all(f.row and f.column and f.value and f.kind for f in figures), table


@pytest.mark.parametrize(
    ("where", "value", "kind"),
    [
        (("care", 2, "bge-small-zh-v1.5", "Params query"), "24M", "parameters"),
        (("care", 2, "CARE-0.3B-4B", "Params document"), "4.02B", "parameters"),
        (("care", 2, "CARE-0.3B-8B", "STS"), "87.07", "Pearson x100"),
        (("care", 3, "Distill-from-4B", "Asym"), "no", "asymmetric or not"),
        (("care", 4, "w/o query align", "Retrieval"), "35.34", "nDCG@10 x100"),
        (("care", 5, "Stage I only: supervised", "Rerank"), "69.69", "MAP@10 x100"),
        (("care", 7, "test: CMedTEB-STS", "Positives"), "47.92", "% positive pairs"),
        (("care", 7, "train: STS", "Corpus or candidates"), "24906", "corpus documents"),
        (("care", 11, "Qwen3-Embedding-8B", "Param."), "7.57B", "parameters"),
        (("care", 17, "Global Batch Size", "Unsup."), "19200", "hyperparameter"),
        (("care", 18, "CARE-0.3B-8B", "Time"), "3.77", "hours to encode 1M documents"),
        (("care", 19, "CARE-0.3B-4B", "Finetune baseline"), "280", "GPU hours"),
        (("care", 20, "CmedqaRetrieval", "False negative"), "18.98", "mean documents per query"),
        (("automir", 1, "CSLRel", "Avg query length"), "281.8", "mean words as printed"),
        (("automir", 2, "BM25", "Covid"), "78.90", "nDCG@10 x100"),
        (("automir", 2, "Improve.", "Cmedqa"), "+1.43", "% change from HyDE"),
        (("automir", 3, "Llama2+BGE: Improve.", "Post"), "-0.32", "% change from HyDE"),
        (("automir", 12, "piccolo(large)", "DuBaike"), "99.06", "Recall@100 x100"),
        (("automir", 13, "Qwen2+PEG: SL-HyDE", "CSLRel"), "42.53", "nDCG@10 x100"),
        (("bmretriever", 2, "SGPT-125M", "PT pairs"), "unknown", "pre-training pairs"),
        (("bmretriever", 2, "BMRetriever-7B", "Avg. All"), "0.610", "mean of the five columns"),
        (("bmretriever", 3, "BMRetriever-2B", "MeSH MRR@5"), "59.5", "MRR@5 x100"),
        (("bmretriever", 4, "BMRetriever-410M", "Trec-COVID"), "0.802", "nDCG@10"),
        (("bmretriever", 11, "BMRetriever-1B", "Retrieval latency"), "28.6", "ms"),
        (("cardioembed", 1, "MedTE", "Acc@5"), "88.99", "accuracy@5 %"),
        (("cardioembed", 2, "CardioEmbed", "NFCorpus"), "0.2026", "nDCG@10"),
    ],
)
def test_cells_read_in_the_papers(where, value, kind):
    figure = cell(*where)
    assert (figure.value, figure.kind) == (value, kind)


def test_numbers():
    assert cell("care", 2, "CARE-0.3B-4B", "Params document").number == 4.02e9
    assert cell("care", 17, "Peak Learning Rate", "RetroMAE").number == 2e-4
    assert cell("automir", 3, "Llama2+BGE: Improve.", "Post").number == -0.32
    assert cell("bmretriever", 2, "SGPT-125M", "PT pairs").number is None
    assert cell("care", 3, "KALE", "Asym").number is None


def test_every_published_average_is_recomputed_and_the_misfits_are_the_recorded_ones():
    assert mismatches() == discrepancies()
    assert len(recompute()) > 300


def test_no_average_escapes_the_check():
    checked = {check.figure for check in recompute()}
    derived = {f for table in tables() for f in published(*table) if f.kind.startswith(("mean of", "% change"))}
    # The ablations print task means without their data sets; Table 5's means are other tables' (see below).
    ablations = {f for f in derived if f.table in (5, 6) and f.row.startswith("SL-HyDE w") and f.column != "Avg.(All)"}
    volumes = set(published("bmretriever", 5))
    assert derived - checked == ablations | volumes


def test_one_cell_printed_in_two_tables_is_the_same():
    for stage, table in (("Pre-training", 4), ("Fine-tuning", 2)):
        for model in ("BMRetriever-410M", "BMRetriever-1B"):
            volume = cell("bmretriever", 5, f"{stage}: {model}", "100%")
            assert volume.value == cell("bmretriever", table, model, "Avg. All").value
    for table, row in ((3, "CARE-0.3B-4B"), (4, "Full Model"), (5, "Stage I then II: self-contrastive")):
        for column in ("Retrieval", "Rerank"):
            assert cell("care", table, row, column).value == cell("care", 2, "CARE-0.3B-4B", column).value


def test_rank_correlation_of_old_and_new_tasks():
    models = [f for f in published("care", 11) if f.note == "zero-shot"]
    old, new = ([f.number for f in models if f.column == column] for column in ("Avg CMed", "Avg New"))
    printed = cell("care", 11, "Spearman rank correlation", "Avg CMed : Avg New").number
    assert len(old) == 14
    assert np.isclose(spearman(old, new), printed, atol=0.0005)


def test_false_negatives_follow_from_their_row():
    for row in ("MedicalRetrieval", "CmedqaRetrieval"):
        old, labelled, wrong, missed = (Decimal(f.value) for f in published("care", 20) if f.row == row)
        assert labelled - (old - wrong) == missed


@pytest.fixture
def tampered(tmp_path, monkeypatch):
    """The data files with one digit changed."""
    caches = (published_tables._files, published_tables._figures, published_tables._cells)
    shutil.copytree(published_tables.FOLDER, tmp_path / "published")
    file = tmp_path / "published" / "care-table-02.csv"
    file.write_text(file.read_text(encoding="utf-8").replace(",78.13,", ",78.14,"), encoding="utf-8")
    monkeypatch.setattr(published_tables, "FOLDER", tmp_path / "published")
    for memory in caches:
        memory.cache_clear()
    yield
    for memory in caches:
        memory.cache_clear()


@pytest.mark.usefixtures("tampered")
def test_a_wrong_digit_would_be_found():
    new = set(mismatches()) - set(discrepancies())
    assert {(d.row, d.column, d.printed, d.recomputed) for d in new} == {("CARE-0.3B-4B", "Avg", "78.14", "78.1260")}


@pytest.mark.parametrize(
    ("printed", "recomputed", "adds_up", "beyond"),
    [
        ("59.66", "59.655", True, False),  # a tie may be rounded either way
        ("59.65", "59.655", True, False),
        ("56.02", "56.027", False, False),  # each part may be off by half a unit
        ("58.77", "59.017", False, True),
        ("+4.65", "4.6591", False, False),
    ],
)
def test_printed_precision(printed, recomputed, adds_up, beyond):
    check = Check(Figure("p", 1, "r", "c", printed, "k"), Decimal(recomputed), Decimal("0.005"))
    assert (check.adds_up, check.beyond_rounding) == (adds_up, beyond)


def test_unknown_paper_and_table_name_the_choices():
    with pytest.raises(PublishedError, match="care, automir, bmretriever, cardioembed"):
        published("carre")
    with pytest.raises(PublishedError, match="tables 1, 2"):
        published("cardioembed", 3)
