"""Curves on the disk: rows, new columns, cuts."""

from __future__ import annotations

from pathlib import Path

from suwen.bench.result_plots import curves_plot
from suwen.training.loop.curves import Curves


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    curves = Curves(tmp_path / "curves.csv")
    rows = [{"step": 1, "loss": 0.1 + 0.2, "rate": 1e-300}, {"step": 2, "loss": 7.0, "rate": 0.5}]
    for row in rows:
        curves.append(row)
    assert curves.rows() == Curves(tmp_path / "curves.csv").rows() == rows
    assert (tmp_path / "curves.csv").read_text() == "step,loss,rate\n1,0.30000000000000004,1e-300\n2,7,0.5\n"


def test_a_new_number_becomes_a_column_and_a_missing_one_an_empty_cell(tmp_path: Path) -> None:
    curves = Curves(tmp_path / "curves.csv")
    curves.append({"loss": 3.0, "step": 1})
    curves.append({"step": 2, "loss": 2.0, "ndcg": 0.5})
    curves.append({"step": 3, "ndcg": None, "loss": 1.0})
    assert (tmp_path / "curves.csv").read_text() == "step,loss,ndcg\n1,3,\n2,2,0.5\n3,1,\n"
    assert curves.columns == ["step", "loss", "ndcg"]
    assert curves.rows()[2] == {"step": 3, "loss": 1.0}
    assert curves_plot(curves.file).columns == ("step", "loss", "ndcg")


def test_what_is_past_a_step_or_torn_is_dropped(tmp_path: Path) -> None:
    curves = Curves(tmp_path / "curves.csv")
    for step in range(1, 6):
        curves.append({"step": step, "loss": 1 / step})
    with curves.file.open("a") as stream:
        stream.write("6,0.1")
    again = Curves(curves.file)
    assert [row["step"] for row in again.rows()] == [1, 2, 3, 4, 5]
    again.truncate(3)
    again.append({"step": 4, "loss": 9.0})
    assert [(row["step"], row["loss"]) for row in Curves(curves.file).rows()] == [(1, 1), (2, 0.5), (3, 1 / 3), (4, 9)]


def test_an_empty_file_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text("")
    curves = Curves(tmp_path / "curves.csv")
    curves.truncate(0)
    curves.append({"step": 1, "loss": 1.0})
    assert Curves(curves.file).rows() == [{"step": 1, "loss": 1.0}]
