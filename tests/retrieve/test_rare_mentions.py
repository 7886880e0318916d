"""The only passage with a rare word is on the first page: passing mentions among a thousand documents."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from in_memory import folder_in_memory
from suwen.corpora.readers import read_documents
from suwen.corpora.records import Document
from suwen.corpora.sample_collection import sample_path
from suwen.encoders.pair import default_pair_path
from suwen.retrieve.retriever import Index

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "rare_mentions.py"


def test_passing_mentions_are_found_by_both_legs() -> None:
    spec = importlib.util.spec_from_file_location("rare_mentions", SCRIPT)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    sample = [one for one in read_documents(sample_path()) if one.id.startswith("zh")]
    # Pairs of passages as documents: a thousand different ones of three hundred.
    made = [
        Document(f"d{number}", sample[number % 300].text + sample[(number * 7 + number // 300) % 300].text)
        for number in range(1000)
    ]
    terms = script.rare_terms([one.text for one in made], 40)
    documents, homes = script.planted(made, terms)
    with folder_in_memory() as folder, Index.create(folder / "i", pair=default_pair_path()) as index:
        index.add(documents, encoder=index.pair.encoder("static"))
        for asked in (str, script.ASKED["in a question"]):
            lost = script.missed(index, homes, asked, "hybrid", "static")
            assert len(lost) <= 2, lost
