"""How well the rules mask personal data: invented sentences with known answers, and real text that has none.

    python benchmarks/mask_personal_data.py [--seed 2] [--count 3380] [--real FILE.jsonl.gz …] [--out docs/masking.json]

A find counts when its kind and both its ends are right. The templates are frozen (see personal_sentences.py); seed 1
was used to write the rules, and every fourth template was held out of that.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from personal_sentences import FROZEN, Sentence, sentences, template_hash

from suwen.text.mask import KINDS, Masker
from suwen.text.split import sentences as split

GROUPS = {
    "numbers": ("id_card", "bank_card", "email", "ssn", "birth", "phone", "record", "bed"),
    "names": ("name",),
    "addresses": ("address",),
}


class Tally:
    """Right, wrong and missed, and how many characters of the personal data are still to be read."""

    def __init__(self) -> None:
        self.wanted: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        self.right: Counter[str] = Counter()
        self.leaked: Counter[str] = Counter()
        self.characters: Counter[str] = Counter()

    def add(self, sentence: Sentence) -> tuple[set[Any], set[Any]]:
        spans = Masker().mask(sentence.text).spans
        hidden = {place for span in spans for place in range(span.start, span.end)}
        got, wanted = {(span.start, span.end, span.kind) for span in spans}, {tuple(gold) for gold in sentence.gold}
        self.found.update(kind for _, _, kind in got)
        self.wanted.update(kind for _, _, kind in wanted)
        self.right.update(kind for _, _, kind in got & wanted)
        for start, end, kind in wanted:
            self.characters[kind] += end - start
            self.leaked[kind] += len(set(range(start, end)) - hidden)
        return wanted - got, got - wanted

    def row(self, kinds: Iterable[str]) -> dict[str, float]:
        kinds = list(kinds)
        wanted, found, right, leaked, characters = (
            sum(counter[kind] for kind in kinds)
            for counter in (self.wanted, self.found, self.right, self.leaked, self.characters)
        )
        return {
            "wanted": wanted,
            "found": found,
            "recall": round(right / wanted, 4) if wanted else 1.0,
            "precision": round(right / found, 4) if found else 1.0,
            "leaked": round(leaked / characters, 4) if characters else 0.0,
        }

    def table(self) -> dict[str, dict[str, float]]:
        rows = {name: self.row(kinds) for name, kinds in GROUPS.items()}
        return rows | {kind: self.row([kind]) for kind in KINDS}


def invented(count: int, seed: int, errors: int, held_out: bool | None) -> dict[str, dict[str, float]]:
    tally = Tally()
    for sentence in sentences(count, seed):
        if held_out is not None and sentence.held_out is not held_out:
            continue
        missed, wrong = tally.add(sentence)
        if (missed or wrong) and errors > 0:
            errors -= 1
            shown = [[f"{kind}:{sentence.text[start:end]}" for start, end, kind in some] for some in (missed, wrong)]
            print(f"missed {shown[0]} wrong {shown[1]} in {sentence.text}")
    return tally.table()


def texts(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            yield record.get("text") or f"{record['query']}\n{record['document']}"


def real(path: Path, errors: int) -> dict[str, Any]:
    """Masks per sentence on a file of real text; every one counts, whether or not somebody is named there."""
    count, masks = 0, Counter[str]()
    for text in texts(path):
        count += len(split(text))
        for span in Masker().mask(text).spans:
            masks[span.kind] += 1
            if errors > 0:
                errors -= 1
                before, after = text[max(0, span.start - 30) : span.start], text[span.end : span.end + 20]
                print(f"{span.kind}: {before}⟦{span.original}⟧{after}".replace("\n", " "))
    total = sum(masks.values())
    return {"sentences": count, "masks": total, "per_200": round(200 * total / count, 4), "kinds": dict(masks)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3380)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--errors", type=int, default=0, help="Print so many errors of each part.")
    parser.add_argument("--part", choices=("all", "written", "held-out"), default="all", help="Which templates.")
    parser.add_argument("--real", type=Path, nargs="*", default=[], help="JSON lines with text, or query and document.")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    assert template_hash() == FROZEN, "the templates are frozen: take the committed file back"
    wanted = {"all": ("all", "written", "held-out")}.get(arguments.part, (arguments.part,))
    result: dict[str, Any] = {"seed": arguments.seed, "count": arguments.count, "templates": FROZEN}
    for part in wanted:
        held_out = {"all": None, "written": False, "held-out": True}[part]
        result[part] = invented(arguments.count, arguments.seed, arguments.errors, held_out)
        print(f"{part}: {'':12} wanted  found recall  prec. leaked")
        for name, row in result[part].items():
            rates = " ".join(f"{row[column]:.4f}" for column in ("recall", "precision", "leaked"))
            print(f"  {name:18} {row['wanted']:6} {row['found']:6} {rates}")
    for path in arguments.real:
        result[path.name] = real(path, arguments.errors)
        print(path.name, result[path.name])
    if arguments.out:
        arguments.out.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
