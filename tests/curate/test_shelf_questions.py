"""Questions for the passages of a shelf, from a scripted model over real HTTP: who asks, and what is kept apart."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from scripted_asker import Ask
from server import Server

from suwen.corpora.records import Document
from suwen.corpora.training_rows import read_training_rows
from suwen.curate.leakage import HeldOut
from suwen.curate.shelf_questions import ASKERS, shelf_passages, write_questions


def page(number: int) -> Document:
    return Document(
        f"p{number}", f"On ward {number} the valve of patient {number} was mended by surgeon {number} at dawn."
    )


def play(body: dict[str, Any]) -> str:
    content = body["messages"][1]["content"]
    number = re.search(r"ward (\d+)", content)
    who = next(at for at, asker in enumerate(ASKERS["en"]) if asker in content)
    return json.dumps({"query": f"who mended valve {number[1] if number else '?'}, asked by kind {who}"})


def test_each_kind_of_asker_asks_about_a_passage_that_is_trained_on(ask: Ask, tmp_path: Path) -> None:
    passages = shelf_passages([page(number) for number in range(40)])
    apart = sum(one.apart for one in passages)
    with Server(play) as server:
        counts = write_questions(passages, tmp_path / "all", ask(server.url), count=1000)
        few = write_questions(passages, tmp_path / "few", ask(server.url), count=20)
    rows = list(read_training_rows(tmp_path / "all" / "rows.jsonl.gz"))
    kinds = Counter(row.query[-1] for row in rows)
    assert kinds == {str(kind): 40 - apart for kind in range(3)}
    assert counts["questions_kept_apart"] == apart, "one question each of what is measured with"
    assert few["passages"] <= 20 and {
        row.query[-1] for row in read_training_rows(tmp_path / "few" / "rows.jsonl.gz")
    } == {"0"}
    held = HeldOut.read(tmp_path / "all" / "held-out.jsonl.gz")
    assert not any(held.hits([row.query, *row.pos]) for row in rows)


def test_of_a_large_shelf_fewer_pages_are_kept_apart() -> None:
    def share(count: int) -> float:
        passages = shelf_passages(page(number) for number in range(count))
        return sum(one.apart for one in passages) / len(passages)

    assert 0.2 < share(900) < 0.3 and 0.07 < share(2600) < 0.14 and 0.03 < share(9000) < 0.07
