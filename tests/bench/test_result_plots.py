from __future__ import annotations

import csv
import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib import font_manager

sys.path.insert(0, str(Path(__file__).parent))
from reported import run_both

from suwen.bench import result_plots as plots
from suwen.bench.result_files import read_results
from suwen.bench.result_plots import (
    Plot,
    PlotError,
    bars_plot,
    curves_plot,
    find_font,
    render,
    similarity_plots,
    speed_plot,
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    every = read_results(run_both(tmp_path_factory.mktemp("plots")))
    return [result for result in every if result.suite == "mine" and result.system != "wrong"]


def rows(plot: Plot) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(plot.csv())))


def picture(plot: Plot, dark: bool = False) -> np.ndarray:
    return matplotlib.image.imread(io.BytesIO(render(plot, dark=dark, dpi=60)), format="png")


def test_bars_hold_every_result(results):
    plot = bars_plot(results)
    told = {row["system"]: float(row["value_x100"]) for row in rows(plot)}
    assert told == {r.system: pytest.approx(100 * r.metrics["ndcg@10"]) for r in results} and len(told) == 2
    assert {row["metric"] for row in rows(plot)} == {"ndcg@10"}
    assert plot.has_chinese and "小集-test" in plot.alt


def test_a_missing_result_is_an_empty_cell(results):
    extra = replace(results[0], task="another")
    cells = {(row["task"], row["system"]): row["value_x100"] for row in rows(bars_plot([*results, extra]))}
    assert cells["another", results[1].system] == "" and cells["another", results[0].system] != ""
    assert picture(bars_plot([*results, extra])).std() > 0


def test_speed_holds_latency_and_its_inverse(results):
    plot = speed_plot(results)
    for row, result in zip(rows(plot), results, strict=True):
        assert float(row["query_ms"]) == result.about["query_ms"] > 0
        assert float(row["qps"]) == pytest.approx(1000 / result.about["query_ms"])
        assert float(row["mean_main_metric_x100"]) == pytest.approx(100 * result.metrics["ndcg@10"])
    assert plot.name == "latency-mine"


def test_the_speed_axis_is_logarithmic(results):
    from matplotlib.figure import Figure

    figure = Figure()
    speed_plot(results).draw(figure)
    assert figure.axes[0].get_xscale() == "log" and "log axis" in figure.axes[0].get_xlabel()


def test_speed_is_compared_over_shared_tasks_only(results):
    one, other = results
    easy = replace(one, task="easy", metrics={"ndcg@10": 1.0})
    assert [row["mean_main_metric_x100"] for row in rows(speed_plot([*results, easy]))] == [
        row["mean_main_metric_x100"] for row in rows(speed_plot(results))
    ]
    assert speed_plot([replace(one, task="here"), replace(other, task="there")]) is None
    untimed = [replace(r, about={**r.about, "query_ms": None}) for r in results]
    assert speed_plot(untimed) is None


def test_histograms_hold_all_pairs(results):
    (plot,) = similarity_plots(results)  # BM25 has no vectors
    for side in ("positives_share", "negatives_share"):
        assert sum(float(row[side]) for row in rows(plot)) == pytest.approx(1)
    edges = [(float(row["from"]), float(row["to"])) for row in rows(plot)]
    assert all(low < high for low, high in edges)


def test_curves_are_read_with_gaps_and_chinese_names(tmp_path):
    (tmp_path / "训练.csv").write_text("step,loss,验证\n0,2.5,\n100,1.5,0.3\n", encoding="utf-8-sig")
    plot = curves_plot(tmp_path / "训练.csv")
    assert plot.columns == ("step", "loss", "验证") and plot.rows == [(0.0, 2.5, None), (100.0, 1.5, 0.3)]
    assert plot.name == "curves-训练" and "验证: last 0.3" in plot.alt
    assert picture(plot).std() > 0


@pytest.mark.parametrize(
    "text", ["", "step\n1\n", "step,loss\n", "step,loss\n1,much\n", "step,loss\n1,2,3\n", "a,b\n,1\n"]
)
def test_what_is_no_file_of_curves_is_told(tmp_path, text):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(PlotError, match=r"bad\.csv.*first column is the step"):
        curves_plot(tmp_path / "bad.csv")


def test_no_file_of_curves(tmp_path):
    with pytest.raises(PlotError, match="No such file"):
        curves_plot(tmp_path / "none.csv")


def test_pictures_are_drawn_on_light_and_dark_ground(results):
    for plot in (bars_plot(results), speed_plot(results), *similarity_plots(results)):
        light, dark = picture(plot), picture(plot, dark=True)
        assert light[0, 0, :3].mean() > 0.95 and dark[0, 0, :3].mean() < 0.2
        assert light.std() > 0.02 and dark.std() > 0.02


def test_chinese_characters_differ_when_drawn():
    """With no font for them, all would be the same box."""
    found = find_font()
    assert found in plots.FONTS, "install a font with Chinese characters: apt-get install fonts-noto-cjk"

    def drawn(label: str) -> bytes:
        return render(Plot("x", label, "", ("a",), [], (2, 1), lambda figure: figure.text(0.1, 0.5, label)))

    assert drawn("高血压") != drawn("糖尿病")


def test_without_a_font_the_notice_says_what_to_install(monkeypatch):
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [])
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    assert find_font() is None
    assert "fonts-noto-cjk" in plots.NO_FONT


def test_matplotlib_is_loaded_only_to_draw():
    modules = "suwen.bench.result_plots, suwen.bench.benchmark_report, suwen.cli.main"
    code = f"import sys, {modules}; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_matplotlib_the_extra_is_named(monkeypatch, results):
    monkeypatch.setattr(plots, "has_matplotlib", lambda: False)
    with pytest.raises(PlotError, match=r"suwen\[eval\]"):
        render(bars_plot(results))


def test_a_system_without_a_latency_is_left_out_of_the_speed_plot(tmp_path):
    every = [result for result in read_results(run_both(tmp_path)) if result.suite == "mine"]
    assert len(every) == 3 and "wrong" not in {row["system"] for row in rows(speed_plot(every))}
    assert "wrong" in {row["system"] for row in rows(bars_plot(every))}
