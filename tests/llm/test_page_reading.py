"""Scans read by a vision model over real HTTP: what is sent, what comes back, what fails, what is paid for once."""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path

import pytest
from PIL import Image

from suwen.corpora.files import BadRecord
from suwen.corpora.readers import read_documents
from suwen.llm.client import LLM
from suwen.llm.config import ConfigProblem, LLMConfig
from suwen.llm.page_reading import picture_reader
from suwen.llm.wire import EndpointProblem

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from server import Fault, Says, Server

from books_on_the_spot import pdf, picture, scanned_pdf

MARKED = "<|ref|>text<|/ref|><|det|>[[90, 110, 880, 190]]<|/det|>\n**Digoxin** is given once a day.\n"


def config(url, vision=True):
    endpoint = {"base_url": url, "concurrency": 2, "attempts": 1}
    return LLMConfig.model_validate(
        {"endpoints": {"e": endpoint}, "models": {"eye": {"endpoint": "e", "model": "scripted", "vision": vision}}}
    )


@pytest.fixture
def book(tmp_path):
    """Three scanned pages of different widths, so that a server can tell them apart."""
    return scanned_pdf(tmp_path / "a.pdf", [picture(["Page"], size=(300 + 100 * place, 200)) for place in range(3)])


def shown(body):
    """The picture in a request, decoded."""
    (image, text) = body["messages"][-1]["content"]
    assert text == {"type": "text", "text": "<|grounding|>Convert the document to markdown."}
    kind, data = image["image_url"]["url"].split(",")
    assert kind == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


def read(book, llm, told=None):
    skip = None if told is None else lambda path, page, why: told.append((page, why))
    return list(read_documents(book, pictures=picture_reader(llm, "eye"), on_page=skip))


def test_pages_are_sent_as_pictures_and_read_once(tmp_path, book):
    with Server(lambda body: f"# Page {shown(body).width}\n\n{MARKED}") as server:
        for _ in range(2):
            with LLM.open(config(server.url), tmp_path / "replies.db") as llm:
                found = read(book, llm)
        assert server.total == 3
    assert [page.metadata["page"] for page in found] == [1, 2, 3]
    assert [page.text.split("\n\n")[1] for page in found] == ["Digoxin is given once a day."] * 3
    widths = [int(page.text.split("\n")[0].removeprefix("Page ")) for page in found]
    assert widths == sorted(widths) and len(set(widths)) == 3
    assert (tmp_path / "replies.db").stat().st_size < 200_000, "pictures are not kept beside replies"


def test_a_page_that_the_model_fails_on_is_told_and_left_out(tmp_path, book):
    def trouble(number, body):
        return Fault("status", 500) if number == 1 else None

    with Server(lambda body: MARKED, trouble) as server, LLM.open(config(server.url), tmp_path / "r.db") as llm:
        told = []
        found = read(book, llm, told)
    assert len(found) == 2 and len(told) == 1
    assert "eye did not read it" in told[0][1] and {page.metadata["page"] for page in found} | {told[0][0]} == {1, 2, 3}


def test_a_page_that_is_cut_off_is_not_taken_for_whole(tmp_path, book):
    told = []
    cut = Server(lambda body: Says("Digoxin is", finish="length"))
    empty = pytest.raises(BadRecord, match="no text was found")
    with cut as server, LLM.open(config(server.url), tmp_path / "r.db") as llm, empty:
        read(book, llm, told)
    assert [page for page, _ in told] == [1, 2, 3] and "raise them in [llm.models.eye]" in told[0][1]


def test_a_key_that_is_refused_ends_the_run(tmp_path, book):
    closed = Server(lambda body: MARKED, lambda number, body: Fault("status", 401))
    refused = pytest.raises(EndpointProblem, match="rejected")
    with closed as server, LLM.open(config(server.url), tmp_path / "r.db") as llm, refused:
        read(book, llm, [])


def test_no_page_leaves_the_machine_for_a_model_without_vision(tmp_path, book):
    with Server() as server, LLM.open(config(server.url, vision=False), tmp_path / "r.db") as llm:
        with pytest.raises(ConfigProblem, match=r"add vision = true to \[llm.models.eye\]"):
            read(book, llm)
        assert server.total == 0


def test_pages_with_text_are_not_sent(tmp_path):
    path = pdf(tmp_path / "b.pdf", [[(60, 100, "A page with a text layer of its own.")]])
    with Server() as server, LLM.open(config(server.url), tmp_path / "r.db") as llm:
        assert [page.text for page in read(path, llm)] == ["A page with a text layer of its own."]
        assert server.total == 0


def test_a_model_in_this_process_has_no_eyes():
    with pytest.raises(ConfigProblem, match="see no pictures"):
        LLMConfig.model_validate(
            {
                "endpoints": {"e": {"base_url": "local"}},
                "models": {"eye": {"endpoint": "e", "model": "m", "vision": True}},
            }
        )
