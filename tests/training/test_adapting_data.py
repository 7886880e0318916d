"""The data folder of an adaptation: nothing that is kept apart, by whomever; questions with negatives."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from suwen.curate.leakage import HeldOut
from suwen.training.adapting_data import put_together


def packed(file: Path, records: Iterable[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress("".join(json.dumps(one) + "\n" for one in records).encode()))


def unpacked(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]


def row(query: str) -> dict[str, Any]:
    return {"query": query, "pos": [f"An answer to that: {query}, at some length."], "neg": ["Nothing of the kind."]}


def test_nothing_that_is_kept_apart_is_trained_on_whoever_keeps_it(tmp_path: Path) -> None:
    work, general = tmp_path / "work", tmp_path / "general"
    secrets = {
        "triplets": "the third valve of the left chamber",
        "questions": "the slow beat of the right chamber",
        "general": "the cold hands of the second guest",
    }
    clean = [row("why does it beat at night"), row("what is a murmur of the old")]
    for name, folder in (("triplets", work / "triplets"), ("questions", work / "questions"), ("general", general)):
        packed(folder / "held-out.jsonl.gz", [{"text": secrets[name]}])
    leaks = [row(f"what of {secret}?") for secret in secrets.values()]
    packed(work / "triplets" / "rows" / "paraphrase.jsonl.gz", [*clean, leaks[2]])
    packed(work / "triplets" / "texts.jsonl.gz", [{"text": clean[0]["query"], "kind": "sentence"}])
    packed(work / "questions" / "rows.jsonl.gz", [*clean, leaks[0], leaks[2]])
    packed(general / "rows" / "own.jsonl.gz", [*clean, *leaks])
    packed(general / "rows" / "gone.jsonl.gz", leaks)
    packed(general / "texts.jsonl.gz", [{"text": text, "kind": "query"} for text in ("what helps", *secrets.values())])
    counts = put_together(work, general)
    assert counts == {"rows": 4, "texts": 1, "general_rows": 2, "general_texts": 1, "left_out": 12, "negatives": 4}
    data = work / "data"
    assert {file.name: len(unpacked(file)) for file in (data / "rows").iterdir()} == {
        "own.jsonl.gz": 2,
        "paraphrase.jsonl.gz": 2,
        "questions.jsonl.gz": 2,
    }
    held = HeldOut.read(data / "held-out.jsonl.gz")
    assert set(held) == set(secrets.values())
    assert not held.hits([one["text"] for one in unpacked(data / "texts.jsonl.gz")])


def test_questions_get_passages_of_the_shelf_as_negatives(tmp_path: Path) -> None:
    work = tmp_path / "work"
    parts = ("mitral valve", "aortic valve", "pulmonary valve", "sinus node", "left atrium", "right atrium")
    packed(work / "triplets" / "held-out.jsonl.gz", [{"text": "a sentence that nothing here holds at all"}])
    packed(work / "questions" / "held-out.jsonl.gz", [{"text": "another sentence that nothing here holds"}])
    packed(work / "triplets" / "texts.jsonl.gz", [{"text": "the heart beats", "kind": "sentence"}])
    packed(work / "triplets" / "rows" / "paraphrase.jsonl.gz", [row("the heart beats at dawn")])
    asked = [
        {"query": f"where is the {part}", "pos": [f"The {part} lies where the surgeon looks for it."]} for part in parts
    ]
    packed(work / "questions" / "rows.jsonl.gz", asked)
    counts = put_together(work)
    rows = unpacked(work / "data" / "rows" / "questions.jsonl.gz")
    assert counts["negatives"] == sum(len(one.get("neg", [])) for one in rows) > 0
    passages = {one["pos"][0] for one in asked}
    assert all(set(one.get("neg", [])) <= passages - set(one["pos"]) for one in rows)
