"""How often spelling and other names change real queries, and how many seeded slips of the pen are set right.

    python benchmarks/wording_harm.py FILE:FIELD [FILE:FIELD ...] [--index FOLDER] [--most 3000] [--show 40] [--seed 7]

A file is JSON lines, also gzipped; its field holds queries, each asked once. Without an index of yours, the bundled
sample is indexed. Told are, for each file, the share of queries whose spelling was changed, of those that mention a
Chinese name of two characters, and the share of seeded slips set right: one character of a known Chinese name replaced
by one that sounds alike, or one letter of a known English word of seven letters or more dropped or swapped with the
next. --show prints as many changes and matches, drawn at random, to be read by a person.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from suwen.index.engine import Snapshot
from suwen.retrieve.retriever import Index
from suwen.retrieve.sample import index_sample
from suwen.retrieve.wording import corrections
from suwen.text.fold import fold
from suwen.text.homophones import sound_alike
from suwen.text.synonyms import Synonyms, shipped

OWN = Synonyms([])
HAN = re.compile("[\u4e00-\u9fff]{2,}")
LATIN = re.compile("[a-z]{7,}")
LONGEST = 300


def queries(source: str, most: int, rng: random.Random) -> list[str]:
    """At most so many distinct queries of a file, drawn at random."""
    path, _, field = source.rpartition(":")
    read = Path(path).read_bytes()
    lines = (gzip.decompress(read) if path.endswith(".gz") else read).decode("utf-8").strip().split("\n")
    found = sorted({text for line in lines if len(text := json.loads(line)[field].strip()) <= LONGEST})
    return sorted(rng.sample(found, min(most, len(found))))


def slips(texts: list[str], rng: random.Random) -> Iterator[tuple[str, str]]:
    """Queries with one name misspelt, and as they were."""
    by_sound: dict[str, list[str]] = defaultdict(list)
    characters = sorted({one for name in shipped().names() for one in name if HAN.fullmatch(one * 2)})
    names = sorted(name for name in shipped().names() if HAN.fullmatch(name))
    known = {word for name in shipped().names() for word in LATIN.findall(name)}
    for text in map(fold, texts):
        words = [match for match in LATIN.finditer(text) if match[0] in known]
        if words:
            match = rng.choice(words)
            place = rng.randrange(2, len(match[0]) - 1) + match.start()
            swapped = text[place + 1] + text[place] if rng.random() < 0.5 else text[place]
            yield text[:place] + swapped + text[place + 2 :], text
            continue
        there = [name for name in names if name in text]
        if not there:
            continue
        name = max(there, key=len)
        place = rng.randrange(len(name))
        right = name[place]
        if right not in by_sound:
            by_sound[right] = [one for one in characters if one != right and sound_alike(one, right)]
        if by_sound[right]:
            wrong = name[:place] + rng.choice(by_sound[right]) + name[place + 1 :]
            yield text.replace(name, wrong), text


def set_right(text: str, found: dict[str, str]) -> str:
    """A query with its corrections in."""
    for typed, right in found.items():
        text = text.replace(typed, right)
    return text


def measure(source: str, snapshot: Snapshot, options: Any) -> None:
    """One file's row, and what a person is to read."""
    rng = random.Random(options.seed)
    texts = queries(source, options.most, rng)
    changed = [(text, found) for text in texts if (found := corrections(text, snapshot, OWN))]
    short = [
        (mention.text, text[max(0, mention.start - 6) : mention.end + 6])
        for text in texts
        for mention in shipped().mentions(text)
        if HAN.fullmatch(mention.text) and len(mention.text) == 2
    ]
    seeded = list(slips(texts, rng))[: options.slips]
    right = sum(set_right(typed, corrections(typed, snapshot, OWN)) == meant for typed, meant in seeded)
    name = Path(source).name
    print(
        f"| {name} | {len(texts)} | {len(changed)} | {100 * len(changed) / len(texts):.2f} | {len(short)} "
        f"| {right} of {len(seeded)} |"
    )
    for text, found in rng.sample(changed, min(options.show, len(changed))):
        print("   ", found, "<-", text[:90])
    for name, around in rng.sample(short, min(options.show, len(short))):
        print("   ", name, "in", around)


def main() -> None:
    """Measure every file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar="FILE:FIELD")
    parser.add_argument("--index", type=Path, help="instead of the sample")
    parser.add_argument("--most", type=int, default=3000, help="queries of a file")
    parser.add_argument("--slips", type=int, default=300, help="seeded slips of a file")
    parser.add_argument("--show", type=int, default=0)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if options.index:
            index = Index.open(options.index)
        else:
            index = Index.create(Path(scratch) / "index")
            index_sample(index)
        with index, index.engine.snapshot() as snapshot:
            print("| file | queries | changed | percent | names of two characters | slips set right |")
            print("|---|---|---|---|---|---|")
            for source in options.sources:
                measure(source, snapshot, options)


if __name__ == "__main__":
    main()
