"""How well books come back: sentence F1 of rendered pages with known answers, text layers and scans.

Layouts are drawn by a seed. The rules were tuned on seeds 1 to 4; the scored half is drawn by ``--seed``, the hash of the
commit of the tuned rules, which nobody knew while they were written. A sentence of a text layer counts where it is exactly
the one that was written, spaces aside; one of a scan where at most a tenth of its characters differ.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

from shelf_pages import Book, draw_book
from shelf_renderers import render, scan

from suwen.curate.shelf_sentences import read_shelf
from suwen.text.book_sentences import is_sentence

CLOSE = 0.9
SCANS = ("clean scan", "degraded scan")


def found_in(path: Path) -> list[str]:
    """The sentences that the project reads out of a PDF."""
    said = read_shelf(path, lambda file, page, why: print(f"{file} page {page}: {why}"))
    return [sentence.text for sentence in said]


def squeezed(text: str) -> str:
    return "".join(text.split())


def exact(truth: list[str], found: list[str]) -> tuple[int, list[str], list[str]]:
    """Matches, what is missing, what is too much."""
    wanted, there = Counter(map(squeezed, truth)), Counter(map(squeezed, found))
    return (wanted & there).total(), list((wanted - there).elements()), list((there - wanted).elements())


def close(truth: list[str], found: list[str]) -> tuple[int, list[str], list[str], float]:
    """The same, one for one, where nearly the same is the same; and the share of characters wrong in what matched."""
    hits, missing, extra = exact(truth, found)
    wrong, characters = 0.0, sum(map(len, truth))
    for sentence in list(missing):
        best = max(extra, key=lambda other: SequenceMatcher(None, sentence, other, autojunk=False).ratio(), default="")
        ratio = SequenceMatcher(None, sentence, best, autojunk=False).ratio()
        if best and ratio >= CLOSE:
            hits += 1
            wrong += (1 - ratio) * len(sentence)
            missing.remove(sentence)
            extra.remove(best)
    return hits, missing, extra, wrong / max(1, characters)


def f1(hits: int, missing: int, extra: int) -> float:
    return 2 * hits / max(1, 2 * hits + missing + extra)


def measure(book: Book, path: Path, is_scan: bool, show: bool) -> dict[str, object]:
    truth = [one for one in book.sentences if is_sentence(one)]
    started = _cpu()
    hits, missing, extra, wrong = close(truth, found_in(path)) if is_scan else (*exact(truth, found_in(path)), 0.0)
    if show:
        print("\n".join([f"  - {one}" for one in missing[:8]] + [f"  + {one}" for one in extra[:8]]))
    score = f1(hits, len(missing), len(extra))
    return {
        "hits": hits,
        "missing": len(missing),
        "extra": len(extra),
        "f1": round(score, 4),
        "wrong": round(wrong, 4),
        "seconds": round(_cpu() - started, 1),
    }


def _cpu() -> float:
    """The CPU seconds of the processes that read pages, so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def total(rows: list[dict[str, object]]) -> dict[str, float]:
    hits, missing, extra = (sum(int(row[key]) for row in rows) for key in ("hits", "missing", "extra"))
    return {
        "books": len(rows),
        "sentences": hits + missing,
        "f1": round(f1(hits, missing, extra), 4),
        "worst": min(float(row["f1"]) for row in rows),
        "wrong": round(sum(float(row["wrong"]) for row in rows) / len(rows), 4),
        "seconds": round(sum(float(row["seconds"]) for row in rows), 1),
    }


def planned(asked: argparse.Namespace) -> Iterator[tuple[str, str, int, str]]:
    """Language, renderer and number of every book, and how it is read."""
    for language in [asked.language] if asked.language else ["en", "zh"]:
        for renderer in [asked.renderer] if asked.renderer else ["fpdf", "chromium"]:
            for number in range(max(asked.books, asked.scans)):
                yield from [(language, renderer, number, "text")] if number < asked.books else []
                yield from [(language, renderer, number, kind) for kind in SCANS if number < asked.scans]


def measured(first: int, plan: tuple[str, str, int, str], pieces: int, show: bool) -> dict[str, object]:
    """Draw a book, render it, scan it where it is to be a scan, and read it back."""
    language, renderer, number, kind = plan
    with tempfile.TemporaryDirectory() as folder:
        book = draw_book(first + number, language, renderer, pieces if kind == "text" else 6)
        path = render(book, Path(folder, "book.pdf"))
        if kind != "text":
            path = scan(path, Path(folder, "scan.pdf"), degraded=kind == "degraded scan", seed=number)
        row = measure(book, path, kind != "text", show)
    return {"language": language, "renderer": renderer, "number": number, "kind": kind, **row}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default="tuning", help="tuning, or the commit whose hash draws the scored half")
    parser.add_argument("--books", type=int, default=6, help="books of each language and renderer")
    parser.add_argument("--scans", type=int, default=0, help="books of each language and renderer that are scans")
    parser.add_argument("--language", choices=["en", "zh"], help="this one alone")
    parser.add_argument("--renderer", choices=["fpdf", "chromium"], help="this one alone")
    parser.add_argument("--pieces", type=int, default=24)
    parser.add_argument("--show", action="store_true", help="print what is missing and what is too much")
    parser.add_argument("--to", type=Path, help="a file of what was measured, a line a book: what is in it stays")
    asked = parser.parse_args()
    first = 1 if asked.seed == "tuning" else int(asked.seed[:12], 16)
    rows = [json.loads(line) for line in asked.to.read_text().splitlines()] if asked.to and asked.to.exists() else []
    known = {tuple(row[key] for key in ("seed", "language", "renderer", "number", "kind")) for row in rows}
    for plan in planned(asked):
        if (asked.seed, *plan) in known:
            continue
        rows.append({"seed": asked.seed, **measured(first, plan, asked.pieces, asked.show)})
        print(json.dumps(rows[-1]), flush=True)
        if asked.to:
            with asked.to.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    kinds: dict[str, list[dict[str, object]]] = {}
    for row in rows:
        if row["seed"] == asked.seed:
            kinds.setdefault(f"{row['language']} {row['kind']}", []).append(row)
    print(json.dumps({name: total(part) for name, part in kinds.items()}, indent=1))


if __name__ == "__main__":
    main()
