"""What is asked by others of other fields than medicine, and how much of it search over the sample turns away.

    python benchmarks/other_fields.py CHATS [FILE:FIELD ...] [--documents document|l6|static] [--tier l6|static]
        [--mode hybrid|dense]

CHATS is the folder `data` of the package chatterbot-corpus (PyPI, BSD), of which the first line of every conversation
on money, trivia, films, food, literature, history, sports, science, politics and computers is asked, in English and
Chinese; not those on the chatbot itself ("can you die"). Some do ask of the body ("what is ultrasound"): what is let in
is listed, to be read. The other files hold real questions of medicine (as in benchmarks/wording_harm.py): of
these it is told how many are taken to be of another field by their words, and how many are turned away for that alone.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

import yaml
from question_set import build
from wording_harm import queries

from suwen.encoders.pair import Pair
from suwen.retrieve import relevance
from suwen.retrieve.results import Results
from suwen.retrieve.retriever import Index

TOPICS = "coding computers food history literature money movies politics science sports tech_support trivia".split()  # noqa: SIM905


def chats(folder: Path, language: str) -> list[str]:
    """The first line of every conversation on one of the topics."""
    found = set()
    for file in (folder / language / f"{topic}.yml" for topic in TOPICS):
        said = yaml.safe_load(file.read_text(encoding="utf-8"))["conversations"] if file.exists() else []
        found |= {str(lines[0]).strip() for lines in said if lines}
    return sorted(found - {""})


def main() -> None:
    """Ask everything, with and without what the words say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chats", type=Path)
    parser.add_argument("real", nargs="*", metavar="FILE:FIELD")
    parser.add_argument("--documents", default="document", choices=("document", "l6", "static"))
    parser.add_argument("--tier", default="l6")
    parser.add_argument("--mode", choices=("hybrid", "dense"), default="hybrid")
    options = parser.parse_args()
    kept = relevance.ELSEWHERE
    with tempfile.TemporaryDirectory() as scratch, Index.create(Path(scratch) / "index", pair=Pair.load()) as index:
        build(index, options.documents, None)

        def search(text: str, odds: float) -> Results:
            relevance.ELSEWHERE = odds  # type: ignore[misc]
            return index.search(text, 1, tier=options.tier, mode=options.mode)

        for language in ("english", "chinese"):
            asked = chats(options.chats, language)
            let_in = [found for text in asked if (found := search(text, kept)).relevant]
            before = sum(search(text, 1.0).relevant for text in asked)
            shares = f"{1 - len(let_in) / len(asked):.3f} turned away, by vectors alone {1 - before / len(asked):.3f}"
            print(f"{language}: {len(asked)} questions, {shares}")
            print("   let in:", "; ".join(f"{found.query} ({found[0].confidence:.2f})" for found in let_in))
        for source in options.real:
            texts = queries(source, 100_000, random.Random(0))
            elsewhere = [text for text in texts if index.worded(text).elsewhere]
            lost = [text for text in elsewhere if search(text, 1.0).relevant > search(text, kept).relevant]
            print(
                f"{Path(source).name}: {len(texts)} questions, of another field {len(elsewhere)}, lost {len(lost)}",
                lost,
            )


if __name__ == "__main__":
    main()
