"""Processes that read pages side by side: in order, more of them for scans, none left behind."""

from __future__ import annotations

import sys
from pathlib import Path

from suwen.corpora.page_processes import Limits, PageProcesses

sys.path.insert(0, str(Path(__file__).parents[1]))

from books_on_the_spot import pdf, picture, scanned_pdf


def test_scans_are_read_side_by_side_and_come_in_order(tmp_path):
    path = scanned_pdf(tmp_path / "a.pdf", [picture([f"Page {number}"], size=(200, 80)) for number in range(7)])
    processes = PageProcesses(path, "pdf", Limits(processes=3), "send")
    try:
        assert processes.about["pages"] == 7
        found = list(processes.pages(7))
        assert [page for page, _ in found] == [record["page"] for _, record in found] == list(range(1, 8))
        assert processes.count == 3
    finally:
        processes.end()


def test_text_takes_one_process(tmp_path):
    path = pdf(tmp_path / "a.pdf", [[(60, 100, f"The dose of week {number} is raised.")] for number in range(9)])
    processes = PageProcesses(path, "pdf", Limits(processes=3), "read")
    try:
        assert len(list(processes.pages(9))) == 9 and processes.count == 1
    finally:
        processes.end()
