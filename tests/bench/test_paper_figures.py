"""CardioEmbed's figures with our rows: real runs of two systems on triplets and pairs written by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from reported import PAIR

from suwen.bench.benchmark_report import write_report
from suwen.bench.paper_figures import paper_figures
from suwen.bench.result_files import read_results
from suwen.bench.suite_runner import run_suite

SAID = {
    "The heart pumps blood to the lungs.": "Blood is pumped to the lungs by the heart.",
    "Aspirin thins the blood.": "The blood is thinned by aspirin.",
    "A murmur is heard over the valve.": "Over the valve a murmur can be heard.",
    "The left atrium fills first.": "First to fill is the left atrium.",
}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cardio")
    rows = [{"anchor": a, "positive": p, "negatives": ["Something else."]} for a, p in SAID.items()]
    pairs = [{"sentence1": a, "sentence2": p, "score": at} for at, (a, p) in enumerate(SAID.items())]
    for name, lines in (("triplets", rows), ("pairs", pairs)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    data = {"Cardiology-Paraphrase": folder / "triplets.jsonl", "BIOSSES": folder / "pairs.jsonl"}
    systems = ["bm25:words", f"pair={PAIR}"]
    run_suite("cardioembed", systems, out=folder / "out", data=data, tasks=list(data))
    return folder / "out"


def test_every_figure_has_our_rows_beside_the_printed_ones(out: Path) -> None:
    results = read_results(out)
    figures = {plot.name: plot for plot in paper_figures("cardioembed", results)}
    assert set(figures) == {"figure-1", "figure-2", "figure-3", "figure-4", "figure-5", "figure-6"}
    first = {row[0]: row[1:] for row in figures["figure-2"].rows}
    ours = next(r for r in results if r.system == "pair" and r.task == "Cardiology-Paraphrase").metrics
    assert first["pair"] == (pytest.approx(100 * ours["accuracy@1"]), "measured here")
    assert first["CardioEmbed"] == (99.6, "published") and "bm25:words" in first
    assert ("BIOSSES: CardioEmbed", pytest.approx(77.48), "published") in figures["figure-1"].rows
    assert ("CardioEmbed", "published", 10, 100.0) in figures["figure-3"].rows
    steps = [row for row in figures["figure-5"].rows if row[1] == "published"]
    assert steps[0][:3] == ("MedTE", "published", 0.0) and sum(row[3] for row in steps) == pytest.approx(99.6)
    assert {row[0] for row in figures["figure-6"].rows} == {"pair"}, "BM25 has no similarity of sentences"
    assert ours["positive_similarity_deviation"] > 0
    assert paper_figures("care", results) == []


def test_the_page_shows_them(out: Path, tmp_path: Path) -> None:
    page = write_report(out, tmp_path).page.read_text(encoding="utf-8")
    assert "The paper&#x27;s figures" in page or "The paper's figures" in page
    assert "positive_similarity_deviation" in page
    assert all((tmp_path / "plots" / f"figure-{number}.png").stat().st_size > 5_000 for number in range(1, 7))


def test_without_results_of_it_there_are_no_figures(out: Path) -> None:
    some = [result for result in read_results(out) if result.task == "BIOSSES"]
    assert [plot.name for plot in paper_figures("cardioembed", some)] == ["figure-1"]
