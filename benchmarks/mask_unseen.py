"""How the masks fare on sentences and records that were written before and apart from the rules, and on clean text.

    python benchmarks/mask_unseen.py [--misses] [--real FILE.jsonl.gz …] [--out docs/data/masking-unseen.json]

Personal data counts as found when a mask covers every character of it, and as exact when one mask has just its ends. A
mask that touches no personal data is a false one. Intervals are Wilson's, 95%. How the set was made is in
make_unseen_sentences.py; what is missed here must not be added to the rules.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from math import sqrt
from pathlib import Path
from typing import Any

from mask_personal_data import real, texts

from suwen.corpora.masked_files import mask_documents
from suwen.text.mask import Masker

HERE = Path(__file__).parent
GROUPS = ("numbers", "names", "addresses")
_MASK = re.compile(r"\[[^\[\]]*\d+\]")


def interval(right: int, count: int) -> list[float]:
    """Wilson's 95% interval of a share."""
    z, share = 1.96, right / count
    middle, spread = share + z * z / (2 * count), z * sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return [round((middle + sign * spread) / (1 + z * z / count), 3) for sign in (-1, 1)]


def rate(right: int, count: int) -> dict[str, Any]:
    return {"right": right, "of": count, "share": round(right / count, 4), "interval": interval(right, count)}


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]


def sentences(rows: list[dict[str, Any]], misses: list[str]) -> dict[str, Any]:
    """Found and exact for each group, all of them and by language, and false masks."""
    wanted, found, exact, false = Counter[str](), Counter[str](), Counter[str](), 0
    for row in rows:
        spans = Masker().mask(row["text"]).spans
        hidden = {place for span in spans for place in range(span.start, span.end)}
        for start, end, group, slot in row["gold"]:
            covered = hidden.issuperset(range(start, end))
            for key in (group, f"{group} {row['genre'][-2:]}"):
                wanted[key] += 1
                found[key] += covered
                exact[key] += any((span.start, span.end) == (start, end) for span in spans)
            if not covered:
                misses.append(f"missed {slot} ⟦{row['text'][start:end]}⟧ in {row['text']}")
        gold = {place for start, end, *_ in row["gold"] for place in range(start, end)}
        wrong = [span for span in spans if gold.isdisjoint(range(span.start, span.end))]
        false += bool(wrong)
        misses += [f"false {span.kind} ⟦{span.original}⟧ in {row['text']}" for span in wrong]
    keys = [f"{group}{part}" for group in GROUPS for part in ("", " zh", " en") if wanted[f"{group}{part}"]]
    table = {key: rate(found[key], wanted[key]) | {"exact": round(exact[key] / wanted[key], 4)} for key in keys}
    return table | {"sentences with a false mask": rate(false, len(rows))}


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a record that holds no others, with where it stands."""
    if isinstance(value, Mapping | list):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from leaves(item, f"{place}/{key}")
    else:
        yield place, value


def masked_record(row: dict[str, Any], folder: Path) -> Any:
    """The record as the file command gives it back, through a file of the row's format."""
    path = folder / f"one.{row['format'].replace('nested', 'jsonl')}"
    with path.open("w", encoding="utf-8", newline="") as out:
        if path.suffix == ".jsonl":
            out.write(json.dumps(row["record"], ensure_ascii=False) + "\n")
        else:
            delimiter = "\t" if path.suffix == ".tsv" else ","
            csv.writer(out, delimiter=delimiter).writerows([row["record"].keys(), row["record"].values()])
    return next(mask_documents(path)).content


def records(rows: list[dict[str, Any]], misses: list[str]) -> dict[str, Any]:
    """Personal values that are nowhere left in their record, and other fields that came back as they were."""
    wanted, found, same, others = Counter[str](), Counter[str](), 0, 0
    for row in rows:
        with tempfile.TemporaryDirectory() as folder:
            try:
                done = dict(leaves(masked_record(row, Path(folder))))
            except Exception as error:  # a format that is refused leaves its values unmasked: it counts as missed
                misses.append(f"refused {row['format']}: {error}")
                done = dict(leaves(row["record"]))
        for value, group in row["gold"]:
            holding = [place for place, leaf in leaves(row["record"]) if value in str(leaf)]
            left = [place for place in holding if value in _MASK.sub("", str(done.get(place, "")))]
            wanted[group] += 1
            found[group] += not left
            misses += [f"missed {value} in {place} of {row['record']}" for place in left]
        for place, leaf in leaves(row["record"]):
            if not any(value in str(leaf) for value, _ in row["gold"]):
                others += 1
                same += str(done.get(place)) == str(leaf)
                if str(done.get(place)) != str(leaf):
                    misses.append(f"changed {leaf} to {done.get(place)} in {place} of {row['record']}")
    return {group: rate(found[group], wanted[group]) for group in GROUPS} | {"other fields kept": rate(same, others)}


def clean(misses: list[str]) -> dict[str, Any]:
    rows = [
        line for line in (HERE / "clean_sentences.txt").read_text(encoding="utf-8").splitlines() if line[:2] != "# "
    ]
    masked = 0
    for text in rows:
        spans = Masker().mask(text).spans
        masked += bool(spans)
        misses += [f"false {span.kind} ⟦{span.original}⟧ in {text}" for span in spans]
    return {"masked": rate(masked, len(rows))}


def speed(pieces: list[str]) -> int:
    """Characters a second on one core, the best of three rounds."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        for text in pieces:
            Masker().mask(text)
        best = min(best, time.process_time() - start)
    return round(sum(map(len, pieces)) / best)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--misses", action="store_true", help="Print everything that is missed or masked falsely.")
    parser.add_argument("--real", type=Path, nargs="*", default=[], help="JSON lines with text, or query and document.")
    parser.add_argument("--set", default="unseen", help="unseen, or development: the set the rules were written on.")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    misses: list[str] = []
    rows = lines(f"{arguments.set}_sentences.jsonl")
    result: dict[str, Any] = {"sentences": sentences(rows, misses)}
    if (HERE / f"{arguments.set}_records.jsonl").exists():
        result["records"] = records(lines(f"{arguments.set}_records.jsonl"), misses)
    if arguments.set == "unseen":
        result["clean sentences"] = clean(misses)
    told = [row["text"] for row in rows]
    result["characters a second"] = {
        "each sentence alone": speed(told),
        "ten sentences a document": speed(["\n".join(told[start : start + 10]) for start in range(0, len(told), 10)]),
    }
    for path in arguments.real:
        result[path.name] = real(path, 0)
        result["characters a second"][path.name] = speed(list(texts(path))[:500])
    for part, table in result.items():
        print(part)
        for name, row in table.items():
            print(f"  {name:28} {row}")
    if arguments.misses:
        print("\n".join(misses))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
