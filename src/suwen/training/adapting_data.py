"""The data folder of an adaptation: what its steps wrote and general data, without anything that is kept apart."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from suwen.corpora.training_rows import read_training_rows, write_training_rows
from suwen.curate.leakage import HeldOut
from suwen.curate.mine import Window, mine_negatives
from suwen.curate.paraphrase import SOURCE
from suwen.curate.triplets import search_texts
from suwen.durable import new_folder, write_json, write_lines
from suwen.encoders.pair import Pair, pair_folder

QUESTIONS = "questions"
#: Which passages may be a question's negatives.
_WINDOW = Window(first_rank=2, last_rank=30, margin=0.97, count=4)


def put_together(work: Path, general: Path | None = None, pair: str = "default") -> dict[str, int]:
    """Make the data folder of the recipe: triplets, questions, and general rows and texts where there are some.

    Rows and texts that hold what is kept apart, of the shelf or of the general data, are left out; how many, it says.
    Questions get negatives: passages of the shelf that the light side of the pair takes for their answers.
    """
    apart = [
        part / "held-out.jsonl.gz" for part in (work / "triplets", work / QUESTIONS, *([general] if general else ()))
    ]
    held_out = HeldOut(text for file in apart for text in HeldOut.read(file))
    counts = {"rows": 0, "texts": 0, "general_rows": 0, "general_texts": 0, "left_out": 0}
    own = {SOURCE: work / "triplets" / "rows" / f"{SOURCE}.jsonl.gz", QUESTIONS: work / QUESTIONS / "rows.jsonl.gz"}
    with new_folder(work / "data") as data:
        (data / "rows").mkdir()
        files = [(name, file, "rows") for name, file in own.items()]
        for file in sorted((general / "rows").glob("*.jsonl.gz")) if general else ():
            files.append((file.name.removesuffix(".jsonl.gz"), file, "general_rows"))
        for name, file, whose in files:
            rows = list(_clean(file, held_out, counts, whose))
            if rows or name in own:
                write_lines(data / "rows" / f"{name}.jsonl.gz", rows)
        counts["negatives"] = _mine(data / "rows" / f"{QUESTIONS}.jsonl.gz", pair)
        texts = [
            _clean(work / "triplets" / "texts.jsonl.gz", held_out, counts, "texts"),
            _question_texts(data / "rows" / f"{QUESTIONS}.jsonl.gz"),
        ]
        if general is not None:
            texts.append(_clean(general / "texts.jsonl.gz", held_out, counts, "general_texts"))
        write_lines(data / "texts.jsonl.gz", chain.from_iterable(texts))
        write_lines(data / "held-out.jsonl.gz", ({"text": text} for text in held_out))
        write_json(data / "counts.json", counts)
    return counts


def _records(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file) as lines:
        yield from map(json.loads, lines)


def _clean(file: Path, held_out: HeldOut, counts: dict[str, int], name: str) -> Iterator[dict[str, Any]]:
    """The rows or texts of a file of which no text is held out, or holds what is."""
    for record in _records(file):
        texts = [value for value in record.values() if isinstance(value, str)]
        texts += [
            text for value in record.values() if isinstance(value, list) for text in value if isinstance(text, str)
        ]
        leaks = bool(held_out.hits(texts))
        counts["left_out" if leaks else name] += 1
        if not leaks:
            yield record


def _question_texts(file: Path) -> Iterator[dict[str, Any]]:
    for row in _records(file):
        yield {"text": row["query"], "kind": "query"}
        yield {"text": row["pos"][0], "kind": "answer"}


def _mine(file: Path, pair: str) -> int:
    """Give the rows of a file negatives among their own passages; how many."""
    rows = list(read_training_rows(file))
    if not rows:
        return 0
    encoder = Pair.load(pair_folder(pair)).encoder()
    passages = list(dict.fromkeys(text for row in rows for text in row.pos))
    search = search_texts(passages, encoder.encode_queries, encoder.encode_documents)
    mined = list(mine_negatives(rows, search, _WINDOW))
    write_training_rows(file, mined)
    return sum(len(row.neg) for row in mined)
