"""Processes that read pages side by side: in order, more of them for scans, few for many files, none left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from suwen.corpora.book_pages import read_pages
from suwen.corpora.files import BadRecord
from suwen.corpora.page_processes import Limits, PageProcesses
from suwen.corpora.readers import read_documents

sys.path.insert(0, str(Path(__file__).parents[1]))

from books_on_the_spot import epub, pdf, picture, raw_pdf, scanned_pdf, word

LINE = "The dose of week {} is raised."


@pytest.fixture
def started(monkeypatch):
    """The processes that were started, and have to be over at the end."""
    found: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen.__init__

    def noted(self, *args, **settings):
        start(self, *args, **settings)
        found.append(self)

    monkeypatch.setattr(subprocess.Popen, "__init__", noted)
    yield found
    assert all(one.poll() is not None for one in found)


def html(folder, name, body):
    path = folder / f"{name}.html"
    path.write_text(f"<html><title>{name}</title><body><p>{body}</p></body></html>", encoding="utf-8")
    return path


def hungry(folder, name):
    """A page of 400,000 paragraphs, which is more than a small process may take."""
    return html(folder, name, "<p>心" * 400_000)


def test_scans_are_read_side_by_side_and_come_in_order(tmp_path):
    path = scanned_pdf(tmp_path / "a.pdf", [picture([f"Page {number}"], size=(200, 80)) for number in range(7)])
    processes = PageProcesses(Limits(processes=3), "send")
    try:
        assert processes.open(path, "pdf")["pages"] == 7
        found = list(processes.pages(7))
        assert [page for page, _ in found] == [record["page"] for _, record in found] == list(range(1, 8))
        assert processes.count == 3
        processes.leave()
        assert processes.count == 1, "one goes on to the next file"
    finally:
        processes.close()


def test_text_takes_one_process(tmp_path):
    path = pdf(tmp_path / "a.pdf", [[(60, 100, f"The dose of week {number} is raised.")] for number in range(9)])
    processes = PageProcesses(Limits(processes=3), "read")
    try:
        assert processes.open(path, "pdf")["pages"] == 9
        assert len(list(processes.pages(9))) == 9 and processes.count == 1
    finally:
        processes.close()


def test_a_folder_of_small_files_takes_one_process(tmp_path, started):
    for number in range(8):
        html(tmp_path, f"a{number}", LINE.format(number))
        word(tmp_path / f"b{number}.docx", f"<w:p><w:r><w:t>{LINE.format(number)}</w:t></w:r></w:p>")
        pdf(tmp_path / f"c{number}.pdf", [[(60, 100, LINE.format(number))]] * 3)
        epub(tmp_path / f"d{number}.epub", [("One", f"<p>{LINE.format(number)}</p>"), ("Two", "<p>Four valves.</p>")])
    found = list(read_documents(tmp_path))
    assert len(found) == 8 + 8 + 24 + 16 and found[3].text == found[11].text == found[27].text == LINE.format(3)
    assert len(started) == 1


def test_a_pdf_file_that_takes_its_process_down_is_the_only_one_that_is_lost(tmp_path, started):
    for number in range(4):
        pdf(tmp_path / f"c{number}.pdf", [[(60, 100, LINE.format(number))]] * 2)
    bomb = zlib.compress(b"q 1 0 0 1 0 0 cm\n" * 15_000_000, 1)
    path = raw_pdf(tmp_path / "c1b.pdf", [zlib.compress(b"BT /F 12 Tf 60 700 Td (Seen.) Tj ET"), bomb])
    processes, told, found = PageProcesses(Limits(memory=450 * 2**20, seconds=60), "read"), [], []
    try:
        for path in sorted(tmp_path.iterdir()):
            records = read_pages(path, "pdf", lambda *one: told.append(one), processes=processes)
            found.append(len(list(records)) - 1)
    finally:
        processes.close()
    assert found == [2, 2, 1, 2, 2] and [page for page, _ in told] == [2]
    assert len(started) <= 3


def test_a_folder_that_is_not_read_to_its_end_leaves_no_process(tmp_path, started):
    for number in range(3):
        html(tmp_path, f"a{number}", LINE.format(number))
    documents = read_documents(tmp_path)
    next(documents)
    del documents
    assert len(started) == 1


def test_a_file_that_cannot_be_read_costs_no_other_and_no_process(tmp_path, started):
    for number in range(3):
        html(tmp_path, f"a{number}", LINE.format(number))
    (tmp_path / "a0b.docx").write_bytes(b"PK")
    (tmp_path / "a1b.pdf").write_bytes(b"%PDF-1.5")
    told = []
    assert len(list(read_documents(tmp_path, on_skip=told.append))) == 3
    assert [Path(one.partition(":")[0]).name for one in told] == ["a0b.docx", "a1b.pdf"]
    assert len(started) == 1


def blocks(processes, path):
    (record,) = list(read_pages(path, "html", lambda *_: None, processes=processes))[1:]
    return record["blocks"]


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(memory=64 * 2**20), "it needs more than 64 MiB of memory"),
        (Limits(seconds=1), "it took longer than 1 seconds"),
    ],
    ids=["memory", "time"],
)
def test_a_file_that_takes_too_much_is_the_only_one_that_is_lost(tmp_path, started, limits, why):
    small, large = html(tmp_path, "a", LINE.format(1)), hungry(tmp_path, "b")
    processes = PageProcesses(limits, "read")
    try:
        assert blocks(processes, small) == [["text", LINE.format(1)]]
        with pytest.raises(BadRecord, match=why):
            blocks(processes, large)
        assert blocks(processes, small) == blocks(processes, small) == [["text", LINE.format(1)]]
    finally:
        processes.close()
    assert len(started) <= 2, "what comes behind it is read by one process"


def test_a_process_that_has_grown_leaves_the_next_file_to_another(tmp_path):
    path = html(tmp_path, "a", LINE.format(1))
    child = "import sys, suwen.corpora.page_child as child; child._HELD = 0; sys.exit(child.main(sys.argv[1:]))"
    asked = json.dumps({"path": str(path), "kind": "html"}) + "\n"
    command = [sys.executable, "-c", child, "--memory", str(2**31), "--seconds", "60"]
    said = subprocess.run(command, input=3 * asked, capture_output=True, text=True, check=True).stdout
    assert len(said.splitlines()) == 3 and LINE.format(1) in said


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_ends_between_two_files_costs_neither(tmp_path, started, how):
    processes = PageProcesses(Limits(), "read")
    try:
        for place in range(4):
            assert blocks(processes, html(tmp_path, f"{place}", LINE.format(place))) == [["text", LINE.format(place)]]
            if place == 1:
                started[-1].send_signal(how)
    finally:
        processes.close()
    assert len(started) == 2


def test_what_is_left_of_a_file_is_not_taken_for_the_next(tmp_path):
    book, page = epub(tmp_path / "a.epub", [("One", "<p>Four valves.</p>"), ("Two", "<p>Two atria.</p>")]), "b"
    processes = PageProcesses(Limits(), "read")
    try:
        records = read_pages(book, "epub", lambda *_: None, processes=processes)
        next(records), next(records)
        records.close()
        assert blocks(processes, html(tmp_path, page, LINE.format(1))) == [["text", LINE.format(1)]]
    finally:
        processes.close()
