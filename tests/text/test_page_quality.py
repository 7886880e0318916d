"""Rendered books come back: a small part of ``benchmarks/shelf_quality.py``, with both renderers and languages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from shelf_pages import draw_book
from shelf_quality import close, exact, f1, found_in
from shelf_renderers import render, scan

from suwen.text.book_sentences import is_sentence


@pytest.mark.parametrize(("language", "renderer"), [("en", "fpdf"), ("zh", "chromium")])
def test_sentences_of_a_text_layer(tmp_path, language, renderer):
    book = draw_book(77, language, renderer, 30)
    hits, missing, extra = exact(
        [one for one in book.sentences if is_sentence(one)], found_in(render(book, tmp_path / "a.pdf"))
    )
    assert hits > 40 and f1(hits, len(missing), len(extra)) >= 0.97, (missing, extra)


@pytest.mark.long
@pytest.mark.parametrize(("degraded", "bar"), [(False, 0.93), (True, 0.85)])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_sentences_of_a_scan(tmp_path, monkeypatch, language, degraded, bar):
    monkeypatch.setenv("SUWEN_CACHE", str(tmp_path / "cache"))
    book = draw_book(77, language, "chromium", 8)
    path = scan(render(book, tmp_path / "a.pdf"), tmp_path / "scan.pdf", degraded=degraded)
    hits, missing, extra, wrong = close([one for one in book.sentences if is_sentence(one)], found_in(path))
    assert f1(hits, len(missing), len(extra)) >= bar, (missing, extra)
    assert degraded or wrong <= 0.02


def test_a_lost_and_an_invented_sentence_count():
    assert exact(["一二三。", "四五六。"], ["一二 三。", "七八九。"]) == (1, ["四五六。"], ["七八九。"])
    assert f1(1, 1, 1) == 0.5
