from __future__ import annotations

import json
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from reported import run_both

from suwen.bench import benchmark_report as report
from suwen.bench.benchmark_report import ReportError, column_scores, write_report
from suwen.bench.published_tables import published
from suwen.bench.result_files import read_results
from suwen.bench.result_plots import PlotError


class Reader(HTMLParser):
    """Tags with their attributes, and the rows of every table by its caption."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self._rows: list[list[str]] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self._rows = []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("th", "td"):
            self._rows[-1].append("")
        if tag in ("caption", "th", "td"):
            self._inside = tag

    def handle_endtag(self, tag):
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data):
        if self._inside == "caption":
            self.tables[data] = self._rows
        elif self._inside:
            self._rows[-1][-1] += data


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return run_both(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def made(out, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    (folder / "run.csv").write_text("step,loss\n0,2\n1,1\n")
    return write_report(out, folder / "report", curves=[folder / "run.csv"])


@pytest.fixture(scope="module")
def text(made):
    return made.page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def reader(text):
    return Reader(text)


def test_every_plot_lies_beside_the_page_as_png_and_csv(made):
    pictures = [path for path in made.plots if path.suffix == ".png"]
    assert len(pictures) == 7  # bars, latency and similarities of two suites; curves
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.with_suffix(".csv").is_file() for path in pictures)
    assert {path.name for path in made.plots} >= {"bars-mine.csv", "latency-cmirb.png", "curves-run.csv"}
    assert made.notices == []


def test_the_page_asks_for_nothing(reader, text):
    assert "http-equiv" in text and "default-src 'none'" in text
    for tag, attributes in reader.tags:
        assert tag not in ("script", "link", "iframe", "object")
        for name in ("src", "srcset"):
            assert attributes.get(name, "data:image/png").startswith("data:image/png")
        assert attributes.get("href", "#").startswith("#")
    assert "url(" not in text and "@import" not in text


def test_texts_of_a_collection_never_become_html(text):
    assert "<script" not in text and "<b>" not in text
    assert "血压高的人&lt;b&gt;怎么吃&lt;/b&gt; &amp; 怎么动" in text
    assert "测量血压&lt;script&gt;" in text


def test_the_page_can_be_read_by_everyone(reader):
    tags = dict(reader.tags)
    assert tags["html"]["lang"] == "en" and "title" in tags
    heads = [attributes for tag, attributes in reader.tags if tag == "th"]
    assert heads and all(attributes.get("scope") in ("col", "row") for attributes in heads)
    images = [attributes for tag, attributes in reader.tags if tag == "img"]
    assert len(images) == 7 and all(len(attributes["alt"]) > 20 for attributes in images)
    anchors = {attributes["id"] for _, attributes in reader.tags if "id" in attributes}
    assert {attributes["href"][1:] for tag, attributes in reader.tags if tag == "a"} == anchors


def test_our_rows_stand_beside_the_published_ones(out, reader):
    caption = next(name for name in reader.tables if "Table 2 (x 100)" in name)
    rows = {row[0]: row[1] for row in reader.tables[caption]}
    printed = next(f for f in published("automir", 2) if (f.row, f.column) == ("BM25", "MedExam"))
    assert rows["BM25 published"] == printed.value
    ours = next(r for r in read_results(out) if r.suite == "cmirb" and r.system == "bm25:words")
    assert rows["bm25:words measured here"] == f"{100 * ours.metrics['ndcg@10']:.2f}"
    assert not any("Improve" in name for name in rows)


def test_a_score_of_other_data_is_not_passed_off_as_the_paper_s(text):
    assert "the suite states 697 queries, these are 8" in text


def test_fractions_and_words_of_a_paper_are_put_in_our_scale():
    cells = {(f.row, f.column): f for f in published("bmretriever", 2)}
    assert report._printed(cells["BM25", "NFCorpus"]) == "32.5"
    known = {(f.row, f.column): f for f in published("cardioembed", 1)}
    assert report._printed(known["CardioEmbed", "Acc@1"]) == "99.60"


def test_every_table_names_its_metrics(text, reader):
    parts = text.split("<table>")[1:]
    assert len(parts) == len(re.findall("<caption>", text)) >= 6
    for part in parts:
        after = part.split("</table></div>")[1]
        assert after.startswith('<dl class="definitions"><dt>')
    assert "nDCG with linear gain" in text


def test_wins_and_losses_come_with_texts(text):
    assert "won +" in text and "judged relevant" in text and "高血压患者应低盐饮食" in text
    assert "paired t-test" in text and "bootstrap" in text


def test_no_results(tmp_path):
    with pytest.raises(ReportError, match="suwen bench run"):
        write_report(tmp_path, tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_a_bad_file_of_curves_leaves_nothing_half_written(out, tmp_path):
    (tmp_path / "bad.csv").write_text("nothing")
    with pytest.raises(PlotError):
        write_report(out, tmp_path / "report", curves=[tmp_path / "bad.csv"])
    assert not (tmp_path / "report").exists()


def test_without_matplotlib_nothing_is_written(out, tmp_path, monkeypatch):
    monkeypatch.setattr("suwen.bench.result_plots.has_matplotlib", lambda: False)
    with pytest.raises(PlotError, match=r"suwen\[eval\]"):
        write_report(out, tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_without_a_chinese_font_the_page_says_so(out, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "find_font", lambda: None)
    made = write_report(out, tmp_path / "report")
    assert len(made.notices) == 1 and "fonts-noto-cjk" in made.page.read_text(encoding="utf-8")


def test_one_system_has_nothing_to_be_compared_with(out, tmp_path):
    for result in read_results(out):
        if result.system == "bm25:words":
            folder = tmp_path / "one" / result.suite
            folder.mkdir(parents=True)
            (folder / "bm25").symlink_to(result.path.parent)
    shutil.copytree(tmp_path / "one", tmp_path / "alone")
    text = write_report(tmp_path / "alone", tmp_path / "report").page.read_text(encoding="utf-8")
    assert "paired t-test" not in text and "bm25:words" in text


def test_columns_of_a_published_table_hold_its_systems_alone():
    scores = column_scores("care:11")
    assert len(scores["Avg CMed"]) == len(scores["Avg New"]) == 14
    assert "Average performance" not in scores["Avg New"]
    assert scores["Avg New"]["Qwen3-Embedding-8B"] == 64.52
    assert set(column_scores("automir:2")["Average"]) & {"Improve."} == set()


def test_columns_of_results_are_tasks_and_the_means_of_their_suites(out, tmp_path):
    shutil.copytree(out, tmp_path / "out")
    # The mean that a suite of one's own names is where its run left it.
    for number, file in enumerate(sorted((tmp_path / "out" / "mine").glob("*/summary.json"))):
        summary = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps(summary | {"averages": {"all": number / 10}}), encoding="utf-8")
    scores = column_scores(str(tmp_path / "out"))
    mean = scores.pop("mine/mean: all")
    assert sorted(mean.values()) == [0.0, 0.1, 0.2]
    tasks = {column: values for column, values in scores.items() if "/mean: " not in column}
    found = {(*column.split("/"), system): value for column, own in tasks.items() for system, value in own.items()}
    assert found == {(r.suite, r.task, r.system): r.metrics[r.main] for r in read_results(out)}
    assert {len(own) for own in tasks.values()} == {3}
