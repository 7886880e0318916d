"""Whether the only passage with a rare word is found by it: passing mentions of rare terms among many documents.

    python benchmarks/rare_mentions.py DATA [--documents 10000] [--mentions 200] [--tier static]

DATA is a folder with a `corpus.jsonl` of BEIR's layout, such as a development collection. Terms that no document has
(drugs of the shipped list, codes, genes, order numbers, values with units) are put as a subordinate clause into the
middle of as many documents, one each. Each is then asked for by itself and in a question; told is how often its
document is among the first three, by words alone and by both legs, and which terms were missed.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from suwen.corpora.collection import Collection
from suwen.corpora.records import Document
from suwen.retrieve.retriever import Index
from suwen.text.synonyms import shipped

GENES = ("BRAF", "KRAS", "EGFR", "ALK", "NTRK1", "JAK2", "FLT3", "IDH1", "PALB2", "CDKN2A", "SMARCB1", "TSC2")
ASKED: dict[str, Callable[[str], str]] = {
    "the term": str,
    "in a question": lambda term: f"{term}是怎么回事",
    "among other words": lambda term: f"患者用{term}要注意什么",
}


def rare_terms(texts: Sequence[str], count: int, seed: int = 7) -> list[str]:
    """Terms that no text has: half of them drugs, the rest codes, genes, order numbers and values."""
    rng = random.Random(seed)
    every = "\n".join(texts).lower()
    drugs = [group[0] for group in shipped().groups[:700] if not any(name.lower() in every for name in group)]
    made = [f"{gene} {rng.choice('ACDEFGHK')}{rng.randint(100, 999)}{rng.choice('LMNPQRST')}" for gene in GENES]
    made += [f"{rng.choice('QRSTVWYZ')}{rng.randint(10, 99)}.{rng.randint(100, 999)}" for _ in range(count)]
    made += [f"LX-{rng.randint(10_000, 99_999)}" for _ in range(count)]
    made += [f"{rng.randint(1000, 9999) / 1000:.3f}mmol/L" for _ in range(count)]
    others = [term for term in dict.fromkeys(made) if term.lower() not in every]
    rng.shuffle(drugs)
    chosen = drugs[: count // 2]
    return chosen + rng.sample(others, count - len(chosen))


def mention(text: str, term: str) -> str:
    """A text with a clause about something else that names the term, after the sentence in its middle."""
    middle = text.find("。", len(text) // 2) + 1 or len(text) // 2
    return f"{text[:middle]}既往记录中提到过{term}，与本次无关。{text[middle:]}"


def planted(documents: Sequence[Document], terms: Sequence[str]) -> tuple[list[Document], dict[str, str]]:
    """The documents, as many of them with one term each, and the document of each term."""
    step = len(documents) // len(terms)
    homes = {documents[place * step].id: term for place, term in enumerate(terms)}
    made = [one._replace(text=mention(one.text, homes[one.id])) if one.id in homes else one for one in documents]
    return made, {term: id_ for id_, term in homes.items()}


def missed(index: Index, homes: dict[str, str], asked: Callable[[str], str], mode: str, tier: str | None) -> list[str]:
    """The terms whose document is not among the first three."""
    found = []
    for term, home in homes.items():
        hits = index.search(asked(term), 3, mode=mode, tier=None if mode == "lexical" else tier)  # type: ignore[arg-type]
        if home not in {hit.document_id for hit in hits} | {same.split("#")[0] for hit in hits for same in hit.same}:
            found.append(term)
    return found


def main() -> None:
    """Plant, index, ask."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--mentions", type=int, default=200)
    parser.add_argument("--tier", default="static", help="of queries and documents")
    options = parser.parse_args()
    documents = [one for one in Collection.open(options.data).documents() if len(one.text) > 40][: options.documents]
    terms = rare_terms([f"{one.title}\n{one.text}" for one in documents], options.mentions)
    made, homes = planted(documents, terms)
    with tempfile.TemporaryDirectory() as scratch, Index.create(Path(scratch) / "index") as index:
        index.add(made, encoder=index.pair.encoder(options.tier))
        print(f"{len(homes)} mentions in {len(made)} documents, tier {options.tier}; in the first three:")
        for name, asked in ASKED.items():
            for mode in ("lexical", "hybrid"):
                lost = missed(index, homes, asked, mode, options.tier)
                print(f"{name}, {mode}: {1 - len(lost) / len(homes):.3f} {lost[:6]}", flush=True)


if __name__ == "__main__":
    main()
