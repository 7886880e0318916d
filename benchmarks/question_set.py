"""How search does on the realistic questions of tests/data/questions, and what it turns away.

    python benchmarks/question_set.py [--part open|last] [--documents document|l6|static] [--tier l6|static]
        [--mode hybrid|dense|lexical] [--lengths] [--without PREFIX] [--plot FILE.svg]

The index is the bundled sample with the passages beside the questions; its documents are encoded by the pair's
document encoder (vectors that come with the pair; the passages beside the questions by `l6`) or by a tier; queries by
`static` where that made the documents, else by `l6`. Told are nDCG@10, how often the first hit and one of the first
three helps, by kind of question; the shares of real questions kept and of off-topic ones turned away, also of those
that helped to set the confidence; how bare names do, off-topic queries of everyday words, and queries of a word or
two (of the part); and how often hits of a confidence helped. `last` is for the end of a piece of work. With
`--lengths` documents and queries are by `static`, whose vectors keep the lengths that its means have: a space of
inner product. `--without icd-` leaves out the entries of a code list.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from suwen.bench.retrieval_metrics import evaluate
from suwen.corpora.collection import Collection
from suwen.corpora.readers import read_documents
from suwen.corpora.sample_collection import sample_path
from suwen.encoders.pair import Pair
from suwen.encoders.space import Manifest, Space, TierDocument, save_manifest
from suwen.retrieve.results import Results
from suwen.retrieve.retriever import Index
from suwen.retrieve.sample import index_sample
from suwen.text.fold import fold

QUESTIONS = Path(__file__).parents[1] / "tests" / "data" / "questions"
EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.001)


def keeping_lengths(folder: Path) -> Pair:
    """The default pair's `static` as a pair of its own, in whose space vectors are not normalised."""
    default = Pair.load()
    tier = default.manifest.tiers["static"]
    shutil.copytree(default.path / tier.path, folder / tier.path)
    fields = default.space.alone.model_dump(exclude={"id", "adapter"}) | {"normalise": False, "similarity": "dot"}
    space = Space.mint(**fields)
    files = {name: hashlib.sha256((folder / tier.path / name).read_bytes()).hexdigest() for name in tier.files}
    tiers = {"static": tier.model_copy(update={"aligned_to": space.id, "files": files})}
    said = {"name": "lengths", "form": "light", "space": space, "tiers": tiers, "default_tier": "static"}
    save_manifest(folder, Manifest(**said, document=TierDocument(kind="tier", tier="static")))
    return Pair.load(folder)


def build(index: Index, documents: str, without: str | None = None) -> None:
    """The sample and the passages beside the questions."""
    beside = [one for one in read_documents(QUESTIONS / "corpus.jsonl") if not (without and one.id.startswith(without))]
    if documents == "document":
        index_sample(index)
        index.add(beside, encoder=index.pair.encoder("l6"))
    else:
        index.add([*read_documents(sample_path()), *beside], encoder=index.pair.encoder(documents))
    index.calibrate()


def read_lines(name: str) -> list[dict[str, Any]]:
    """One of the files beside the questions."""
    return [json.loads(line) for line in (QUESTIONS / name).read_text(encoding="utf-8").splitlines()]


def names_found(index: Index, how: Mapping[str, Any]) -> str:
    """Of queries that are a bare name: how often the first hit holds it, one of three, and it counts as answered."""
    rows, missed = [], []
    for line in read_lines("names.jsonl"):
        found, held = index.search(line["text"], 10, **how), [fold(name) for name in line["held"]]
        holds = [any(name in fold(f"{hit.title} {hit.text}") for name in held) for hit in found]
        rows.append((holds[:1] == [True], any(holds[:3]), found.relevant))
        if not all(rows[-1]):
            place = holds.index(True) + 1 if any(holds) else "beyond 10"
            missed.append(f"{line['text']} ({place}{'' if found.relevant else ', turned away'})")
    first, three, kept = np.mean(rows, axis=0)
    told = f"of {len(rows)} names the first hit holds {first:.3f}, one of three {three:.3f}; kept {kept:.3f}"
    return f"{told}\nnot so: " + "; ".join(missed)


def words_told(index: Index, how: Mapping[str, Any], part: str) -> str:
    """Of queries of a word or two: how many off-topic ones are turned away and of medicine kept, and which are not."""
    told = []
    for lang in ("zh", "en"):
        lines = [line for line in read_lines("words.jsonl") if (line["part"], line["lang"]) == (part, lang)]
        wrong = [line for line in lines if index.search(line["text"], 3, **how).relevant != line["medical"]]
        let_in, lost = ([line["text"] for line in wrong if line["medical"] is medical] for medical in (False, True))
        count = sum(line["medical"] for line in lines)
        shares = f"turned away {1 - len(let_in) / (len(lines) - count):.3f}, kept {1 - len(lost) / count:.3f}"
        told.append(f"of a word or two, {lang}: {shares}; let in: {'; '.join(let_in)}; lost: {'; '.join(lost)}")
    return "\n".join(told)


def reliability(found: dict[str, Results], qrels: dict[str, dict[str, float]], off: list[Results]) -> list[list[float]]:
    """For stretches of confidence: how many first hits, their mean confidence, and the share that helped."""
    pairs = [(one[0].confidence, qrels[id_].get(one[0].document_id, 0) > 0) for id_, one in found.items() if one.hits]
    pairs += [(one[0].confidence, False) for one in off if one.hits]
    rows = []
    for low, high in pairwise(EDGES):
        inside = [(sure, helped) for sure, helped in pairs if low <= sure < high]
        if inside:
            rows.append([len(inside), *map(float, np.mean(inside, axis=0))])
    return rows


def plot(rows: list[list[float]], file: Path) -> None:
    """The reliability of a confidence, as a picture."""
    marks = "".join(
        f'<circle cx="{40 + 300 * sure:.0f}" cy="{340 - 300 * helped:.0f}" r="{3 + count**0.5:.1f}" fill="#2a6f97" '
        f'fill-opacity="0.7"><title>{count:.0f} first hits</title></circle>'
        for count, sure, helped in rows
    )
    axes = (
        '<path d="M40 340H340M40 340V40" stroke="#333"/><path d="M40 340L340 40" stroke="#999" stroke-dasharray="4"/>'
    )
    words = '<text x="120" y="365">confidence told</text><text x="8" y="30">share that helped</text>'
    file.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 380 380" font-family="sans-serif" font-size="13" '
        f'fill="#333"><rect width="380" height="380" fill="#fff"/>{axes}{words}{marks}</svg>\n',
        encoding="utf-8",
    )


def main() -> None:
    """Ask everything, tell how it went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="open", choices=("open", "last"))
    parser.add_argument("--documents", default="document", choices=("document", "l6", "static"))
    parser.add_argument("--tier", help="of the queries")
    parser.add_argument("--mode", choices=("hybrid", "dense", "lexical"), default="hybrid", help="of the search")
    parser.add_argument("--lengths", action="store_true", help="the pair is `static` with vectors that keep lengths")
    parser.add_argument("--without", metavar="PREFIX", help="leave out passages beside the questions, by their ids")
    parser.add_argument("--plot", type=Path, help="draw the reliability of the confidence")
    options = parser.parse_args()
    options.documents = "static" if options.lengths else options.documents
    tier = options.tier or ("static" if options.documents == "static" else "l6")
    asked = [line for line in read_lines("queries.jsonl") if line["metadata"]["part"] == options.part]
    off = read_lines("off_topic.jsonl")
    qrels = {id_: dict(grades) for id_, grades in Collection.open(QUESTIONS).qrels().items()}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pair = keeping_lengths(scratch / "pair") if options.lengths else Pair.load()
        index = stack.enter_context(Index.create(scratch / "index", pair=pair))
        build(index, options.documents, options.without)
        how = {"tier": tier, "mode": options.mode}
        found = {line["_id"]: index.search(line["text"], 10, **how) for line in asked}
        away = [index.search(line["text"], 3, **how) for line in off if line["part"] == options.part]
        before = [index.search(line["text"], 3, **how).relevant for line in read_lines("off_topic_development.jsonl")]
        everyday = [index.search(line["text"], 3, **how) for line in read_lines("everyday.jsonl")]
        names = names_found(index, how)
        words = words_told(index, how, options.part)
    run = {id_: {hit.document_id: -float(place) for place, hit in enumerate(one)} for id_, one in found.items()}
    ndcg = evaluate(run, {id_: qrels[id_] for id_ in run}, ["ndcg@10"])["ndcg@10"]
    kinds = defaultdict(list)
    for (id_, one), value, line in zip(found.items(), ndcg, asked, strict=True):
        helped = [qrels[id_].get(hit.document_id, 0) > 0 for hit in one]
        for kind in (line["metadata"]["kind"], "all"):
            kinds[kind].append((float(value), helped[:1] == [True], any(helped[:3])))
    print(f"part {options.part}, documents by {options.documents}, queries by {tier}, {options.mode}\n")
    print("| questions | number | nDCG@10 | first helps | one of three |\n|---|---|---|---|---|")
    for kind, rows in kinds.items():
        mean = np.mean(rows, axis=0)
        print(f"| {kind} | {len(rows)} | {100 * mean[0]:.1f} | {mean[1]:.2f} | {mean[2]:.2f} |")
    print(f"\nkept {np.mean([one.relevant for one in found.values()]):.3f} of {len(found)} real questions, turned away")
    print(f"{np.mean([not one.relevant for one in away]):.3f} of {len(away)} off-topic ones, and")
    print(f"{1 - np.mean(before):.3f} of the {len(before)} that helped to set the confidence")
    print("let in: " + "; ".join(one.query for one in away if one.relevant))
    print(f"{np.mean([not one.relevant for one in everyday]):.3f} of {len(everyday)} of everyday words turned away")
    print("let in: " + "; ".join(one.query for one in everyday if one.relevant))
    print(names)
    print(words)
    rows = reliability(found, qrels, away)
    print("\n| first hits | mean confidence | helped |\n|---|---|---|")
    for count, sure, helped in rows:
        print(f"| {count:.0f} | {sure:.2f} | {helped:.2f} |")
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
