"""Turn public English medical files into the data of the recipes bmretriever-mini and bmretriever-light.

Pairs for pre-training (OpenStax, answers of MedQuAD, documents of NFCorpus), rows for fine-tuning with the paper's
instructions (MedQuAD, consultations without iCliniq, question pairs, NFCorpus' training queries), unlabelled texts for
a light query encoder, and what is held out: all of PubMedQA and iCliniq, NFCorpus' development queries, and of the
other files the rows whose first text has a sha1 divisible by ten, with those that share a document with them.

The files are gzipped JSON lines of DATA/en: medquad-qa (source, focus, query, document; abachaa/MedQuAD), consult-qa
(source, query, document), medical-question-pairs (a, b, label; curai), pubmedqa (query, document, conclusion),
openstax-nursing and openstax-anatomy (title, paragraphs), and nfcorpus/ with corpus, queries-train, qrels-train and
queries-dev. Example::

    python tools/make_bmretriever_data.py DATA OUT --synthetic kept.jsonl.gz --asked written.jsonl.gz
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import random
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from public_rows import Row, hold, rows_of, split

from suwen.bench.published_tables import instructions
from suwen.corpora.training_rows import read_training_rows
from suwen.curate.convert import convert
from suwen.curate.leakage import HeldOut, comparable
from suwen.curate.screening import Screen
from suwen.curate.text_pairs import Corpus, make_pairs
from suwen.curate.unlabelled import sentence_texts, spans, terms
from suwen.durable import new_folder

log = logging.getLogger("bmretriever-data")
#: The texts of a row, by file: the first decides whether it is held out, the last is the one that rows may share.
SPLIT = {
    "medquad-qa": ("query", "document"),
    "consult-qa": ("query", "document"),
    "medical-question-pairs": ("a", "b"),
}
#: Characters of a piece of a textbook, and of an unlabelled text.
PIECE, TEXT = 1500, 400
#: Documents that a word, or a pair of them, must be in to be a text of its own.
TERM = 5
#: Longest span of a text: what reads like a query.
SPAN = 100
#: Spans of a document, and of how many sentences one is taken: so what reads like a query is a third of all texts.
SPANS, SENTENCES = 8, 3
#: Documents of a training query of NFCorpus that its rows name first.
BEST = 6


class Data:
    """The files, with what is held out taken out of the rows."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.held_out = folder / "en", HeldOut()
        self.rows = {
            name: split(self.held_out, self.read(name), fields, lambda row: row.get("source") == "icliniq")
            for name, fields in SPLIT.items()
        }
        for row in self.read("pubmedqa"):
            hold(self.held_out, row, ("query", "document", "conclusion"))
        for row in self.read("nfcorpus/queries-dev"):
            hold(self.held_out, row, ("text",))

    def read(self, name: str) -> list[Row]:
        """All rows of a file."""
        return list(rows_of(self.folder, name))


def pieces(paragraphs: Iterable[str]) -> Iterator[str]:
    """Paragraphs of a textbook module, as many together as a passage takes."""
    piece = ""
    for paragraph in paragraphs:
        if piece and len(piece) + len(paragraph) > PIECE:
            yield piece
            piece = ""
        piece = f"{piece}\n{paragraph}".strip()
    if piece:
        yield piece


def corpora(data: Data) -> dict[str, list[dict[str, str]]]:
    """The documents of pre-training, by corpus; NFCorpus' titles end where its abstracts begin."""
    books = [row for name in ("openstax-nursing", "openstax-anatomy") for row in data.read(name)]
    papers = [row["text"].partition(" abstract ") for row in data.read("nfcorpus/corpus")]
    return {
        "openstax": [{"title": row["title"], "text": text} for row in books for text in pieces(row["paragraphs"])],
        "medquad": [{"text": row["document"]} for row in data.rows["medquad-qa"]],
        "nfcorpus": [{"title": title, "text": text} if text else {"text": title} for title, _, text in papers],
    }


def write_lines(file: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    """Write JSON lines, packed where the name says so; without a time inside, so that equal files are equal."""
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(text, mtime=0) if file.suffix == ".gz" else text)
    return file


def pretraining(data: Data, scratch: Path, rows: Path, seed: int) -> dict[str, Any]:
    """Pairs of titles and texts, or of two passages where there is no title; and of passages alone."""
    sizes = {name: (write_lines(scratch / f"{name}.jsonl", some), len(some)) for name, some in corpora(data).items()}
    counts = {}
    for name, crops in (("unsup-pretraining", False), ("unsup-crops", True)):
        # By their sizes, so that all end together.
        mix = [Corpus(path=file, weight=size, crops=crops) for file, size in sizes.values()]
        counts[name] = make_pairs(mix, rows / f"{name}.jsonl.gz", seed=seed, held_out=data.held_out)
    return {name: {Path(key).name: value for key, value in said.items()} for name, said in counts.items()}


def best_judged(judged: Iterable[Row]) -> list[Row]:
    """The few judgements of each query that say most: NFCorpus marks 1 document in 27 as linked directly."""
    kept: defaultdict[str, list[Row]] = defaultdict(list)
    draw = random.Random(0)
    for row in sorted(judged, key=lambda row: (-row["score"], draw.random())):
        if len(kept[row["query"]]) < BEST:
            kept[row["query"]].append(row)
    return [row for some in kept.values() for row in some]


def write_beir(folder: Path, data: Data, judged: Iterable[Row]) -> Path:
    """NFCorpus' training part as BEIR lays it out."""
    corpus, queries = data.read("nfcorpus/corpus"), data.read("nfcorpus/queries-train")
    write_lines(folder / "corpus.jsonl", ({"_id": row["id"], "title": "", "text": row["text"]} for row in corpus))
    write_lines(folder / "queries.jsonl", ({"_id": row["id"], "text": row["text"]} for row in queries))
    lines = [f"{row['query']}\t{row['document']}\t{row['score']}" for row in judged]
    (folder / "qrels").mkdir()
    (folder / "qrels" / "train.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n", "utf-8")
    return folder


def labelled(data: Data, scratch: Path, rows: Path) -> dict[str, Any]:
    """Rows with the paper's instructions: of NFCorpus the best-judged documents, and all that are right, by name."""
    judged = data.read("nfcorpus/qrels-train")
    named = {"medquad": "medquad-qa", "consult-qa": "consult-qa", "mqp": "medical-question-pairs"}
    sources = {kind: (kind, write_lines(scratch / f"{kind}-rows.jsonl", data.rows[own])) for kind, own in named.items()}
    sources["nfcorpus"] = "nfcorpus", write_beir(scratch / "best", data, best_judged(judged))
    sources["nfcorpus-judged"] = "nfcorpus", write_beir(scratch / "judged", data, judged)
    said = instructions("bmretriever")
    return {
        name: dict(convert(kind, source, rows / f"{name}.jsonl.gz", said, held_out=data.held_out))
        for name, (kind, source) in sources.items()
    }


def synthetic(files: Iterable[Path], data: Data, rows: Path) -> dict[str, int]:
    """Rows that a model wrote (`suwen curate synthesise`, `round-trip`), without what is held out."""
    screen = Screen(held_out=data.held_out)
    screen.write(rows / "synthetic.jsonl.gz", (row for file in files for row in read_training_rows(file)))
    return dict(screen.counts)


def texts(data: Data, seed: int, asked: Iterable[str] = ()) -> Iterator[dict[str, str]]:
    """Unlabelled texts with their kinds, none twice and none held out: what is query-like first, written ones too."""
    dice, documents = random.Random(seed), corpora(data)
    given = [
        (row[key], "query") for name in SPLIT for row in data.rows[name] for key in ("query", "a", "b") if key in row
    ]
    given += [(row["text"], "query") for row in data.read("nfcorpus/queries-train")]
    given += [(query, "query") for query in asked]
    given += [(row["focus"], "name") for row in data.rows["medquad-qa"]]
    given += [(one["title"], "title") for some in documents.values() for one in some if "title" in one]
    whole = [one["text"] for some in documents.values() for one in some]
    # Most queries of NFCorpus are a word or two.
    given += [(term, "term") for term in terms(whole, least=TERM)]
    whole += [row["document"] for row in data.rows["consult-qa"]]
    given += [(text, "answer") for text in whole]
    stated = [sentence for text in whole for sentence in sentence_texts(text)]
    given += [(sentence, "sentence") for sentence in dice.sample(stated, len(stated) // SENTENCES)]
    given += [(span, "span") for text in whole for span in spans(text, SPANS, dice, longest=3) if len(span) <= SPAN]
    seen: set[str] = set()
    for text, kind in given:
        key = comparable(text)[:TEXT]
        if key and key not in seen and not data.held_out.hit(text):
            seen.add(key)
            yield {"text": text[:TEXT], "kind": kind}


def main() -> None:
    """Write everything into a new folder, which appears when it is whole."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder whose en/ holds the files named above")
    parser.add_argument("out", type=Path, help="a new folder for the training data")
    parser.add_argument("--synthetic", type=Path, nargs="*", default=[], help="rows that a model wrote, to be added")
    parser.add_argument(
        "--asked", type=Path, nargs="*", default=[], help="written rows whose queries are taken as texts alone"
    )
    parser.add_argument("--like", type=Path, help="a folder made without written rows: what it has is taken from it")
    parser.add_argument("--seed", type=int, default=0, help="for everything that is drawn")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if options.out.exists():
        raise SystemExit(f"{options.out} exists; remove it or choose another folder")
    if options.like is not None and not (options.like / "counts.json").is_file():
        raise SystemExit(f"--like {options.like}: no folder that this tool has made; leave --like out")
    data = Data(options.data)
    with new_folder(options.out) as out, tempfile.TemporaryDirectory() as scratch:
        rows = out / "rows"
        if options.like is not None:
            shutil.copytree(options.like / "rows", rows)
            counts: dict[str, Any] = json.loads((options.like / "counts.json").read_text(encoding="utf-8"))
        else:
            counts = pretraining(data, Path(scratch), rows, options.seed) | labelled(data, Path(scratch), rows)
        if options.synthetic:
            counts["synthetic"] = synthetic(options.synthetic, data, rows)
        asked = (*options.synthetic, *options.asked)
        written = [row.query for file in asked for row in read_training_rows(file)]
        write_lines(out / "texts.jsonl.gz", texts(data, options.seed, written))
        write_lines(out / "held-out.jsonl.gz", ({"text": text} for text in data.held_out))
        (out / "counts.json").write_text(json.dumps(counts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    log.info("%s", json.dumps(counts, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
