"""What tests of ``suwen jury`` share: a collection, a scripted server, and the commands over them. No test here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))
sys.path.insert(0, str(Path(__file__).parents[1] / "jury"))
from court import by_mark, judges
from server import Server

from suwen.corpora.collection import write_collection
from suwen.corpora.records import Document, Qrel, Query
from suwen.jury.verdicts import read_verdicts
from suwen.jury.votes import Votes

QUERIES = [Query("q1", "高血压怎么吃"), Query("q2", "结石能溶解吗")]
#: A passage ends in the grade that the scripted judges give it.
TEXTS = {f"p{n}": f"第{n}段 等级 {'SADDC'[n % 5]}" for n in range(10)}


class Bench:
    """A collection, a scripted server and the commands over them."""

    def __init__(self, suwen, server: Server) -> None:
        self.suwen, self.server = suwen, server
        models = "".join(
            f'[llm.models.{name}]\nendpoint = "here"\nmodel = "{name}"\nprice_out = 1.0\nmax_tokens = 600\n'
            for name in ("one", "two", "three")
        )
        here = f'[llm.endpoints.here]\nbase_url = "{server.url}"\nbackoff = 0.01\nconcurrency = 2\n'
        Path("suwen.toml").write_text(here + models)
        self.write(TEXTS)
        run = [f"{query.id} Q0 {id_} {n} {9 - n} x" for query in QUERIES for n, id_ in enumerate(TEXTS)]
        Path("theirs.run").write_text("\n".join(run))

    def write(self, texts, queries=QUERIES) -> None:
        """Put a collection in the place of the one that is there, and pool it again."""
        subprocess.run(["rm", "-rf", "collection"], check=True)
        documents = [Document(id_, text) for id_, text in texts.items()]
        qrels = {"test": [Qrel("q1", "p0", 1), Qrel("q2", "p2", 1)]}
        write_collection("collection", documents, queries, qrels)

    def pool(self):
        return self("pool", "collection", "work", "--run", "theirs.run", "--depth", 10)

    def __call__(self, *arguments):
        done = self.suwen("jury", *arguments, "--json")
        return done.code, done.json if done.out.strip().startswith(("{", "[")) else done.err

    def judge(self, *names, **options):
        more = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
        return self("judge", "work", *(f"-j{name}" for name in names), "--batch", 5, *filter(lambda x: x != "", more))

    def votes(self):
        with Votes("work/votes.db") as votes:
            return {(v.query_id, v.passage_id, v.judge): v for v in votes}


@pytest.fixture
def play():
    """What the server's models say; a test may put another in its place."""
    return {"now": judges(by_mark)}


@pytest.fixture
def bench(suwen, tmp_path, monkeypatch, play):
    monkeypatch.chdir(tmp_path)
    with Server(lambda body: play["now"](body), models=("one", "two", "three")) as server:
        yield Bench(suwen, server)


def labels():
    return {(v.query_id, v.passage_id): v.label for v in read_verdicts("work/verdicts.jsonl")}
