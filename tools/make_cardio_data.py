"""Make the data of a cardiology specialist from public files: books as PDFs, sentences, questions held out, suites.

    python tools/make_cardio_data.py shelf DATA WORK        # WORK/shelf/*.pdf, every second one as scans
    python tools/make_cardio_data.py read WORK              # ingested back: WORK/read/*.jsonl, a page a record
    python tools/make_cardio_data.py questions DATA WORK    # WORK/suites/cardio.toml, its collections, rows to train on
    python tools/make_cardio_data.py general GENERAL WORK   # WORK/general: what make_training_data made, and these rows

Then ``suwen adapt WORK/read --general WORK/general …`` makes the specialist. DATA has gzipped JSON lines:
en/openstax-anatomy and en/openstax-nursing (title, paragraphs), en/medquad-qa (focus, query, document;
abachaa/MedQuAD) and zh/toyhom-qa (department, query, document; Toyhom/Chinese-medical-dialogue-data), of which the
heart's part is taken. Held out are rows whose query has a sha1 divisible by ten, and those that share a document with
them; no book holds their documents. Pages are drawn by benchmarks/shelf_renderers.py, which needs fpdf2 and, for
Chinese, fonts-noto-cjk.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from public_rows import Row, cut, rows_of, split

from suwen.corpora.collection import write_collection
from suwen.corpora.records import Document, Qrel, Query
from suwen.corpora.training_rows import TrainingRow, read_training_rows, write_training_rows
from suwen.curate.leakage import HeldOut, comparable
from suwen.curate.shelf_sentences import read_shelf
from suwen.curate.suite_file import SuiteTask, suite_text
from suwen.durable import write_lines, write_text
from suwen.text.clean import clean
from suwen.text.segment import language_of
from suwen.text.split import sentences

HEART = re.compile(
    r"\b(?:hearts?|cardiac|cardio\w*|coronary|angina|aort\w+|arrhythmi\w+|atrial|atrium|ventric\w+|mitral|myocard\w+"
    r"|pericard\w+|endocard\w+|tachycardia|bradycardia|hypertension|blood pressure|atheroscler\w+|aneurysms?"
    r"|circulat\w+|blood vessels?|vascul\w+|palpitations|heartbeat|carotid|\w*cholesterol\w*|pacemakers?|stents?"
    r"|strokes?|thrombo\w*|\w*embol\w+|blood clots?|arter\w+|veins?|venous|varicose|long qt|brugada|\w*lipid\w*"
    r"|hypotension|valves?|marfan)\b",
    re.IGNORECASE,
)
DEPARTMENT = "心血管科"
LANGUAGES = {"medquad": "en", "toyhom": "zh"}
#: Characters of a document that is trained on, and documents of one book of answers.
TRAINED, TOGETHER = 1500, 60


def main() -> None:
    """Run one of the verbs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, places in {"shelf": ("data", "work"), "read": ("work",), "questions": ("data", "work")}.items():
        verb = verbs.add_parser(name)
        for place in places:
            verb.add_argument(place, type=Path)
        if name == "shelf":
            verb.add_argument("--books", type=int, default=None, help="only the first books of each source")
            verb.add_argument("--scan-pages", type=int, default=8, help="the most pages of a book of scans")
        if name == "read":
            verb.add_argument("--no-ocr", action="store_true")
    general = verbs.add_parser("general")
    general.add_argument("data", type=Path)
    general.add_argument("work", type=Path)
    chosen = parser.parse_args()
    {"shelf": make_shelf, "read": read_back, "questions": make_questions, "general": add_general}[chosen.verb](chosen)


def heart_rows(data: Path) -> dict[str, tuple[list[Row], list[Row]]]:
    """The heart's part of the question files: what may be trained on, and what is held out."""
    files = {
        "medquad": (data / "en", "medquad-qa", lambda row: bool(HEART.search(row["focus"] or ""))),
        "toyhom": (data / "zh", "toyhom-qa", lambda row: row["department"] == DEPARTMENT),
    }
    found = {}
    for name, (folder, file, wanted) in files.items():
        every = [row for row in rows_of(folder, file) if row["query"] and row["document"]]
        kept = split(HeldOut(), every, ("query", "document"))
        known = {id(row) for row in kept}
        found[name] = (
            [row for row in kept if wanted(row)],
            [row for row in every if id(row) not in known and wanted(row)],
        )
    return found


def books(data: Path) -> Iterator[tuple[str, str, str, list[tuple[str, list[str]]]]]:
    """The books of the shelf: file name, title, language, and chapters of paragraphs."""
    for name, title in (("openstax-anatomy", "Anatomy of the Heart"), ("openstax-nursing", "Nursing of the Heart")):
        modules = [row for row in rows_of(data / "en", name) if HEART.search(row["title"])]
        for number in range(0, len(modules), 4):
            yield (
                f"{name}-{number // 4}",
                title,
                "en",
                [(m["title"], m["paragraphs"]) for m in modules[number : number + 4]],
            )
    for name, (kept, _) in heart_rows(data).items():
        language, title = LANGUAGES[name], "Heart Topics" if name == "medquad" else "心血管问答"
        chapters = {
            comparable(row["document"]): (str(row.get("focus") or row["query"]), [row["document"]]) for row in kept
        }
        parts = list(chapters.values())
        for number in range(0, len(parts), TOGETHER):
            yield f"{name}-{number // TOGETHER}", title, language, parts[number : number + TOGETHER]


def make_shelf(chosen: argparse.Namespace) -> None:
    """Render the books; every second one is put through a scanner."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    from shelf_pages import Book, Element, draw_layout
    from shelf_renderers import render, scan

    shelf = chosen.work / "shelf"
    shelf.mkdir(parents=True, exist_ok=True)
    seen: dict[str, int] = {}
    for number, (name, title, language, chapters) in enumerate(books(chosen.data)):
        source = name.rpartition("-")[0]
        seen[source] = seen.get(source, 0) + 1
        to = shelf / f"{name}.pdf"
        if to.exists() or (chosen.books is not None and seen[source] > chosen.books):
            continue
        layout = draw_layout(random.Random(name), language, "fpdf")
        elements = [
            piece
            for heading, paragraphs in chapters
            for piece in (
                Element("heading", clean(heading)),
                *(Element("paragraph", one) for one in _paragraphs(paragraphs)),
            )
        ]
        book = Book(title, layout, elements, [])
        if number % 2:
            plain = render(book, chosen.work / f".{name}.pdf")
            scan(plain, chosen.work / f".{name}.scan", degraded=False, seed=number, pages=chosen.scan_pages)
            plain.unlink()
            (chosen.work / f".{name}.scan").rename(to)
        else:
            render(book, chosen.work / f".{name}.pdf").rename(to)
        print(f"{to}: {'scans' if number % 2 else 'text'}", flush=True)  # noqa: T201


def _paragraphs(texts: Iterable[str]) -> Iterator[str]:
    """Paragraphs of about as many sentences as books have."""
    for text in texts:
        whole = clean(text)
        parts = [whole[start:end].strip() for start, end in sentences(whole)]
        for first in range(0, len(parts), 6):
            if joined := ("" if "。" in whole else " ").join(parts[first : first + 6]):
                yield joined


def read_back(chosen: argparse.Namespace) -> None:
    """Read the books as any reader would, each into a file of pages with a sentence a line."""
    for path in sorted((chosen.work / "shelf").glob("*.pdf")):
        to = chosen.work / "read" / f"{path.stem}.jsonl"
        if to.exists():
            continue
        pages: dict[int, list[str]] = {}
        for one in read_shelf(path, lambda file, page, why: print(file, page, why), ocr=not chosen.no_ocr):  # noqa: T201
            pages.setdefault(one.page, []).append(one.text)
        if not pages:
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        records = (
            {"_id": f"{path.name}#page={page}", "text": "\n".join(said), "book": path.stem, "page": page}
            for page, said in pages.items()
        )
        print(f"{to}: {write_lines(to, records)} pages, {sum(map(len, pages.values()))} sentences", flush=True)  # noqa: T201


def make_questions(chosen: argparse.Namespace) -> None:
    """Questions held out by document, over all documents of their file; and rows of the others to train on."""
    suites, rows, tasks = chosen.work / "suites", list[TrainingRow](), list[SuiteTask]()
    every = {"medquad": (chosen.data / "en", "medquad-qa"), "toyhom": (chosen.data / "zh", "toyhom-qa")}
    texts = list[str]()
    for name, (kept, held) in heart_rows(chosen.data).items():
        pool = {comparable(row["document"]): cut(row["document"], TRAINED) for row in rows_of(*every[name])}
        ids = {key: f"d{number}" for number, key in enumerate(pool)}
        asked = {comparable(row["query"]): row for row in held}
        queries = [Query(f"q{number}", row["query"]) for number, row in enumerate(asked.values())]
        right = [
            Qrel(query.id, ids[comparable(row["document"])], 1)
            for query, row in zip(queries, asked.values(), strict=True)
        ]
        folder = suites / f"{name}-heart"
        shutil.rmtree(folder, ignore_errors=True)
        write_collection(
            folder, (Document(ids[key], text) for key, text in pool.items() if text), queries, {"test": right}
        )
        tasks.append(SuiteTask("retrieval", folder.name, name=folder.name, language=LANGUAGES[name]))
        texts += [text for row in held for text in (clean(row["query"]), cut(row["document"]))]
        # The same question may be asked in other letters, or about another document.
        apart = HeldOut(texts)
        made = [TrainingRow(clean(row["query"]), (cut(row["document"], TRAINED),)) for row in kept]
        made = [row for row in made if not apart.hits([row.query, *row.pos])]
        rows += made
        print(f"{folder}: {len(queries)} questions, {len(pool)} documents; {len(made)} rows to train on")  # noqa: T201
    for task in tasks:
        write_text(suites / f"{task.name}.toml", suite_text(task.name, [task], licence="see the sources"))
    write_text(suites / "cardio.toml", suite_text("cardio", tasks, licence="see the sources"))
    write_training_rows(chosen.work / "cardio-qa.jsonl.gz", rows)
    write_lines(chosen.work / "cardio-held-out.jsonl.gz", ({"text": text} for text in dict.fromkeys(texts)))


def add_general(chosen: argparse.Namespace) -> None:
    """General rows and texts, with the heart's questions as a source of each language, and all that is held out."""
    to = chosen.work / "general"
    shutil.rmtree(to, ignore_errors=True)
    # The pair that goes on has learnt from crops already.
    shutil.copytree(chosen.data, to, ignore=shutil.ignore_patterns("unsup-*"))
    # Packed files one behind the other are one packed file.
    with (to / "held-out.jsonl.gz").open("ab") as out:
        out.write((chosen.work / "cardio-held-out.jsonl.gz").read_bytes())
    apart = HeldOut.read(to / "held-out.jsonl.gz")
    rows = [
        row for row in read_training_rows(chosen.work / "cardio-qa.jsonl.gz") if not apart.hits([row.query, *row.pos])
    ]
    # A batch is of one source, and a document in the other language is no work to tell apart.
    for language in sorted(LANGUAGES.values()):
        write_training_rows(
            to / "rows" / f"cardio-qa-{language}.jsonl.gz", (row for row in rows if language_of(row.query) == language)
        )
    sources = sorted(path.name for path in (to / "rows").glob("*.jsonl.gz"))
    print(json.dumps({"general": str(to), "sources": len(sources)}))  # noqa: T201


if __name__ == "__main__":
    main()
