"""Hypothetical documents for one search: within a time, at an endpoint that may be slow, dead or talk nonsense."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from suwen.corpora.records import Document
from suwen.retrieve.retriever import Index
from suwen.retrieve.rewriting import Rewriter, RewritingProblem

sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))
from server import Body, Server

SAYS = "高血压患者应当低盐饮食，并且定期测量血压。"


def configured(folder: Path, url: str, more: str = "") -> Path:
    file = folder / "suwen.toml"
    file.write_text(
        f'[llm.endpoints.here]\nbase_url = "{url}"\nattempts = 2\nbackoff = 0.01\n'
        f'[llm.models.m]\nendpoint = "here"\nmodel = "scripted"\n[hyde]\nmodel = "m"\n{more}',
        "utf-8",
    )
    return file


def test_what_is_written_leads_a_search_and_is_kept(tmp_path: Path) -> None:
    documents = [Document("salt", SAYS), Document("bone", "骨折以后要固定六周，复查以后再下地。")]
    with Index.create(tmp_path / "index") as index:
        index.add(documents)
        with Server(lambda _: SAYS) as server:
            rewriter = Rewriter.load(configured(tmp_path, server.url))
            found = rewriter.write_now("那个怎么办", budget_ms=60_000)
            asked = server.total
            again = rewriter.write_now("那个怎么办", budget_ms=60_000)
            assert again.texts == found.texts and server.total == asked, "it is asked again"
            rewriter.close()
        assert found.texts == (SAYS,) and found.note == "searched with 1 hypothetical document"
        plain = index.search("那个怎么办", mode="dense")
        fused = index.search("那个怎么办", mode="dense", beside=found)
    scores = [{hit.document_id: hit.score for hit in some} for some in (plain, fused)]
    assert fused[0].document_id == "salt" and scores[1]["salt"] > scores[0]["salt"]
    assert found.note in fused.notes and fused.timings["total"] >= fused.timings["write"] > 0
    assert "write" not in plain.timings


def test_the_client_is_loaded_before_the_clock_starts(tmp_path: Path) -> None:
    """In a process of its own, where nothing has asked a model before."""
    script = """
import sys
from pathlib import Path
from suwen.retrieve.rewriting import Rewriter
loaded = []
async def written(self, query, count):
    loaded.append("openai.resources.chat.completions" in sys.modules)
    return ("一段话",), ""
Rewriter._written = written
rewriter = Rewriter.load(Path(sys.argv[1]))
assert "openai" not in sys.modules, "a search without it would pay for it too"
assert rewriter.write_now("高血压怎么办", budget_ms=1).texts == ("一段话",)
assert loaded == [True]
"""
    file = configured(tmp_path, "http://127.0.0.1:9")
    subprocess.run([sys.executable, "-c", script, str(file)], check=True)


def test_after_its_time_the_plain_query_is_searched_with(tmp_path: Path) -> None:
    late = threading.Event()

    def slow(_: Body) -> str:
        late.wait(60)
        return SAYS

    with Server(slow) as server:
        rewriter = Rewriter.load(configured(tmp_path, server.url))
        found = rewriter.write_now("高血压怎么办", budget_ms=50)
        late.set()
        rewriter.close()
    assert found.texts == () and found.note == "searched with the plain query: none was written within 50 ms"


def test_an_endpoint_that_dies_or_talks_nonsense_leaves_the_query(tmp_path: Path) -> None:
    with Server(lambda _: "Sorry, I cannot say anything about this.") as server:
        rewriter = Rewriter.load(configured(tmp_path, server.url, "n = 2\n"))
        nonsense = rewriter.write_now("高血压怎么办", budget_ms=60_000)
    assert nonsense.texts == () and "language 2" in nonsense.note
    # The server is gone by now.
    gone = rewriter.write_now("糖尿病怎么办", budget_ms=60_000)
    rewriter.close()
    assert gone.texts == () and gone.note.startswith("searched with the plain query: ")


def test_nothing_is_sent_where_no_model_is_named_for_it(tmp_path: Path) -> None:
    with Server(lambda _: SAYS) as server:
        file = configured(tmp_path, server.url)
        file.write_text(file.read_text("utf-8").partition("[hyde]")[0], "utf-8")
        with pytest.raises(RewritingProblem, match=r"\[hyde\]"):
            Rewriter.load(file)
        file.write_text(file.read_text("utf-8") + '[hyde]\nmodel = "m"\nmuch = 3\n', "utf-8")
        with pytest.raises(RewritingProblem, match="much"):
            Rewriter.load(file)
        assert server.total == 0
