"""Turn public medical text files into training data: rows by source, unlabelled texts, and the held-out texts.

Nothing held out is written: all dev files, and of a file without a dev part the rows whose first text has a sha1
divisible by ten, with those that share a document with them. A text of another file that equals or holds one of these
is left out too. Rows whose file begins with ``unsup-`` are made from documents alone (a first sentence and the rest).

The files are gzipped JSON lines: those of tools/make_dev_collections.py, and zh/cmedqq-train (ChineseBLUE),
zh/kuake-qqr-train, zh/chip-cdn-train and -dev, zh/textbook-sentences (CBLUE), zh/imcs-symptom-train and -dev (IMCS),
zh/covid-pairs-train, zh/procedure-codes, zh/disease-aliases, zh/disease-articles, zh-en/icd10-names (GNU Health),
zh-en/hpo-labels (HPO), en/nfcorpus queries-train and qrels-train, en/consult-qa, en/openstax-nursing and -anatomy.
Example::

    python tools/make_training_data.py DATA training-data --written written.jsonl.gz
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import random
import re
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from public_rows import Row, cut, hold, rows_of, split

from suwen.corpora.files import open_text
from suwen.corpora.training_rows import TrainingRow, write_training_rows
from suwen.curate.leakage import HeldOut, comparable
from suwen.curate.mine import look_alikes
from suwen.curate.patterns import ONE_EN, ONE_ZH, SAME_ZH, TITLES_ZH, TWO_EN, TWO_ZH
from suwen.curate.unlabelled import Mix, Text, ask, first_and_rest, halves, sentence_texts, spans, windows
from suwen.text.clean import clean

log = logging.getLogger("training-data")
#: Characters kept of a passage, of a half of an unsupervised pair, and of an unlabelled text.
PASSAGE, REST, TEXT = 500, 300, 400
#: A span is meant to read like a query, so a longer one is not drawn; English takes three letters for a character.
SPAN = {"zh": 40, "en": 100}
NEGATIVES = 8
#: Of what a language model wrote: the kinds that are titles, the longest line (of a question told at length, too), the
#: English kinds, marks before a line.
TITLES = ("title", "topic")
WRITTEN = {"zh": 80, "en": 120}
TOLD = 200
WRITTEN_EN = ("search", "near", "about")
_MARKS = re.compile(r"^\s*(?:[-*•·]+|[（(]?\d{1,2}[.、)）:：]|(?:搜索词|标题|问题|网页标题)\d?[：:])\s*")
#: NFCorpus judges some 40 documents a query, nearly all by way of a link of a link: more would drown the other sources.
PER_QUERY = 12
#: The texts of a row, by file, where one row in ten is held out; the last is the one that rows may share.
SPLIT = {
    "zh/huatuo-qa-a": ("query", "document"),
    "zh/toyhom-qa": ("query", "question", "document"),
    "en/medquad-qa": ("query", "document"),
    "en/pubmedqa": ("query", "conclusion", "document"),
    "en/consult-qa": ("query", "document"),
    "en/medical-question-pairs": ("a", "b"),
}
#: Evaluation files, used whole. The standard terms of the two term files are names of a public list, not test texts.
DEV = {
    "zh/cmedir-dev": ("query",),
    "zh/cmedqa-dev": ("query", "document"),
    "zh/cmedqq-dev": ("a", "b"),
    "zh/chip-cdn-dev": ("mention",),
    "zh/imcs-symptom-dev": ("mention",),
    "en/nfcorpus/queries-dev": ("text",),
}
SECTIONS = {
    "intro": ("{x}", "{x}简介", "{x}是什么病"),
    "cause": ("{x}的病因", "{x}是什么原因引起的", "{x}发病原因"),
    "prevent": ("{x}如何预防", "{x}的预防措施", "怎么预防{x}"),
    "treat_detail": ("{x}怎么治疗", "{x}的治疗方法", "{x}治疗"),
    "nursing": ("{x}的护理", "{x}护理注意事项"),
    "symptom": ("{x}有什么症状", "{x}的症状", "{x}的临床表现"),
    "drug": ("{x}吃什么药", "{x}用什么药"),
    "neopathy": ("{x}的并发症", "{x}会引起什么并发症"),
}
#: Names longer than this are classification headings that nobody asks for; those of these files are asked for most.
NAME = {"zh": 10, "en": 40}
COMMON = ("zh/disease-aliases", "zh/disease-articles", "zh/imcs-symptom-train", "en/medquad-qa")
#: The share of all texts that a kind may take; patterns, of which there is no end, fill up each language. Long kinds
#: are kept few: a query encoder meets queries, and the rows hold the documents already.
PATTERNS = {"zh": (ONE_ZH, TWO_ZH), "en": (ONE_EN, TWO_EN)}
LANGUAGES = {"zh": 0.62, "en": 0.38}
SHARES = {
    "zh": {"query": 0.27, "name": 0.045, "title": 0.12, "answer": 0.005, "sentence": 0.025, "span": 0.12},
    "en": {"query": 0.16, "name": 0.03, "title": 0.01, "answer": 0.003, "sentence": 0.03, "span": 0.12},
}
#: Rows kept of a source: the vectors of all their texts are computed, and no epoch asks for more than 9,000.
MOST_ROWS = 13_000
FEWER_ROWS = dict.fromkeys(("medquad", "openstax", "disease-articles", "hpo", "icd10"), 6000)


class Data:
    """The files, read once, with the held-out rows taken out."""

    def __init__(self, folder: Path, written: Path | None = None) -> None:
        self.folder, self.written = folder, [] if written is None else list(read_written(written))
        self.held_out = HeldOut()
        self._rows: dict[str, list[Row]] = {}
        for name, fields in DEV.items():
            for row in rows_of(folder, name):
                hold(self.held_out, row, fields)
                for title in row.get("documents", ()):
                    self.held_out.add(cut(title["text"]))
        for name, fields in SPLIT.items():
            self._rows[name] = split(self.held_out, rows_of(folder, name), fields)
        self.hit = lru_cache(1 << 17)(self.held_out.hit)

    def rows(self, name: str) -> list[Row]:
        """The rows of a file that may be trained on."""
        if name not in self._rows:
            self._rows[name] = list(rows_of(self.folder, name))
        return self._rows[name]


class Written(NamedTuple):
    """A line a language model wrote (see tools/write_texts.py): what it is, what asks and what answers."""

    kind: str
    query: str
    document: str


def read_written(path: Path) -> Iterator[Written]:
    """The usable lines of every reply: no numbers before them, no remarks, as long as a query or a title may be."""
    with open_text(path) as lines:
        for reply in map(json.loads, lines):
            for raw in reply["lines"]:
                line = _MARKS.sub("", raw).strip("\"'“”「」 ")
                asked, arrow, title = (part.strip(' “”"') for part in line.partition("=>"))
                kind = reply["kind"]
                longest = TOLD if kind == "tell" else WRITTEN["en" if kind in WRITTEN_EN else "zh"]
                if not 3 <= len(asked) <= longest or bool(arrow) != (kind == "topic") or asked.endswith((":", "：")):
                    continue
                if kind == "topic" and 3 <= len(title) <= longest:
                    yield Written(kind, asked, title)
                elif kind == "title":
                    yield Written(kind, reply["x"], asked)
                elif kind != "topic":
                    yield Written(kind, asked, reply["with"])


def written(*kinds: str) -> Callable[[Data], Iterator[TrainingRow]]:
    """Rows from what a language model wrote; half of the titles get the name of a site, as real ones have."""

    def make(data: Data) -> Iterator[TrainingRow]:
        draw = random.Random(6)
        for kind, query, document in data.written:
            if kind in kinds:
                named = kind in TITLES and draw.random() < 0.5
                title = draw.choice(TITLES_ZH).format(x=document.strip("？?。")) if named else document
                yield TrainingRow(query, (title,), type="title" if kind in TITLES else "retrieval")

    return make


def answers(name: str, *pairs: tuple[str, str], kind: str = "retrieval") -> Callable[[Data], Iterator[TrainingRow]]:
    """Rows from one field of a file to another. The same document's rows stand together, which packs well."""

    def make(data: Data) -> Iterator[TrainingRow]:
        for row in data.rows(name):
            for query, document in pairs:
                yield TrainingRow(row[query], (row[document],), type=kind)

    return make


def questions(name: str, positive: int = 1) -> Callable[[Data], Iterator[TrainingRow]]:
    """Question pairs: each right partner (a label of ``positive`` or more) a row, the wrong ones its negatives."""

    def make(data: Data) -> Iterator[TrainingRow]:
        right: defaultdict[str, list[str]] = defaultdict(list)
        wrong: defaultdict[str, list[str]] = defaultdict(list)
        for row in data.rows(name):
            if row["label"] >= positive:
                right[row["a"]].append(row["b"])
            elif row["label"] == 0:
                wrong[row["a"]].append(row["b"])
        for query, partners in right.items():
            for partner in partners:
                yield TrainingRow(query, (partner,), tuple(wrong[query][:NEGATIVES]), type="symmetric_question")

    return make


def web_titles(data: Data) -> Iterator[TrainingRow]:
    """A question to the title of a page that answers it: the question, or one that asks the same, with site names."""
    draw = random.Random(5)

    def titled(text: str) -> str:
        return draw.choice(TITLES_ZH).format(x=text.strip("？?。"))

    for name in ("zh/cmedqq-train", "zh/kuake-qqr-train", "zh/covid-pairs-train"):
        pairs = [(row["a"], row["b"]) for row in data.rows(name) if row["label"] >= 1]
        yield from (TrainingRow(a, (titled(b),), type="title") for a, b in pairs)
    asked = dict.fromkeys(row["query"] for row in data.rows("zh/toyhom-qa"))
    yield from (TrainingRow(text, (titled(text),), type="title") for text in asked if len(text) <= 24)
    for row in data.rows("zh/disease-aliases"):
        names = [name for name in (row["name"], *row["aliases"]) if len(name) <= NAME["zh"]]
        if names:
            one, other = draw.sample(draw.choice(SAME_ZH), 2)
            title = titled(other.format(x=draw.choice(names)))
            yield TrainingRow(one.format(x=draw.choice(names)), (title,), type="title")


def terms(name: str, listed: str | None) -> Callable[[Data], Iterator[TrainingRow]]:
    """Mentions to standard names; negatives are other names of the list that share most character pairs with it."""

    def make(data: Data) -> Iterator[TrainingRow]:
        rows = data.rows(name)
        names = [row["name"] for row in data.rows(listed)] if listed else [row["standard"] for row in rows]
        near = look_alikes(sorted(set(names)), 3 * NEGATIVES)
        for row in rows:
            pos = tuple(part for part in dict.fromkeys(map(clean, row["standard"].split("##"))) if part)
            neg = tuple(name for name in near(row["mention"] + pos[0]) if name not in pos and name != row["mention"])
            yield TrainingRow(row["mention"], pos, neg[:NEGATIVES], type="term")

    return make


def aliases(data: Data) -> Iterator[TrainingRow]:
    """Another name of a disease to its name."""
    for row in data.rows("zh/disease-aliases"):
        for alias in row["aliases"]:
            yield TrainingRow(alias, (row["name"],), type="term")


def translations(name: str) -> Callable[[Data], Iterator[TrainingRow]]:
    """English names to Chinese ones and back."""

    def make(data: Data) -> Iterator[TrainingRow]:
        for row in data.rows(name):
            if len(row["zh"]) > 1 and len(row["en"]) > 2:
                yield TrainingRow(row["en"], (row["zh"],), type="translation")
                yield TrainingRow(row["zh"], (row["en"],), type="translation")

    return make


def article_parts(row: Row) -> Iterator[tuple[str, str]]:
    """The sections of an article, long ones in passages of some 400 characters; lists are written out."""
    for section in SECTIONS:
        value = row.get(section) or ""
        text = "、".join(value) if isinstance(value, list) else clean(value)
        passage = ""
        for sentence in sentence_texts(text):
            if passage and len(passage) + len(sentence) > PASSAGE:
                yield section, passage
                passage = ""
            passage += sentence
        if len(passage) >= 8:
            yield section, passage


def articles(data: Data) -> Iterator[TrainingRow]:
    """A disease and the heading of a section, put in two ways, to a passage of the section."""
    draw = random.Random(0)
    for row in data.rows("zh/disease-articles"):
        for section, passage in article_parts(row):
            for pattern in draw.sample(SECTIONS[section], 2):
                yield TrainingRow(pattern.format(x=row["name"]), (passage,), type="retrieval")


def nfcorpus(data: Data) -> Iterator[TrainingRow]:
    """Training queries of NFCorpus, each with its best-judged documents; in order of the documents, see ``answers``."""
    draw = random.Random(0)
    queries = {row["id"]: row["text"] for row in data.rows("en/nfcorpus/queries-train")}
    judged: defaultdict[str, list[tuple[int, float, str]]] = defaultdict(list)
    for row in data.rows("en/nfcorpus/qrels-train"):
        if row["score"] > 0 and row["query"] in queries:
            judged[row["query"]].append((-row["score"], draw.random(), row["document"]))
    asked: defaultdict[str, list[str]] = defaultdict(list)
    for query, documents in judged.items():
        for _, _, document in sorted(documents)[:PER_QUERY]:
            asked[document].append(queries[query])
    for row in data.rows("en/nfcorpus/corpus"):
        for query in asked[row["id"]]:
            yield TrainingRow(query, (row["text"],), type="retrieval")


def medquad(data: Data) -> Iterator[TrainingRow]:
    """A question, and the disease it is about, to the answer."""
    for row in data.rows("en/medquad-qa"):
        yield TrainingRow(row["query"], (row["document"],), type="retrieval")
        if len(row["focus"]) > 2:
            yield TrainingRow(row["focus"], (row["document"],), type="retrieval")


def modules(data: Data) -> Iterator[Row]:
    """The modules of both textbooks that have a title of their own, with their paragraphs of text."""
    for row in chain(data.rows("en/openstax-nursing"), data.rows("en/openstax-anatomy")):
        if not row["title"].strip().lower().startswith(("introduction", "summary", "key term", "review", "chapter")):
            yield {"title": row["title"], "paragraphs": [text for text in row["paragraphs"] if len(text) >= 120]}


def openstax(data: Data) -> Iterator[TrainingRow]:
    """The title of a textbook module to each of its paragraphs."""
    for row in modules(data):
        for paragraph in row["paragraphs"]:
            yield TrainingRow(row["title"], (paragraph,), type="retrieval")


def unsupervised(texts: Callable[[Data], Iterable[str]]) -> Callable[[Data], Iterator[TrainingRow]]:
    """The first sentence of a document to the rest of it, or a sentence's one half to the other."""

    def make(data: Data) -> Iterator[TrainingRow]:
        for text in texts(data):
            pair = first_and_rest(clean(text)) or halves(clean(text))
            if pair:
                yield TrainingRow(cut(pair[0], REST), (cut(pair[1], REST),), type="unsupervised")

    return make


def abstracts(data: Data) -> Iterator[TrainingRow]:
    """The title of an NFCorpus document to its abstract; the corpus marks where the one ends."""
    for row in data.rows("en/nfcorpus/corpus"):
        title, mark, rest = row["text"].partition(" abstract ")
        if mark and len(rest) > 40:
            yield TrainingRow(title, (cut(rest, PASSAGE),), type="unsupervised")


def field(name: str, key: str = "document") -> Callable[[Data], Iterable[str]]:
    """One field of a file."""
    return lambda data: (row[key] for row in data.rows(name))


def article_texts(data: Data) -> Iterator[str]:
    """The passages of all articles."""
    return (passage for row in data.rows("zh/disease-articles") for _, passage in article_parts(row))


def paragraphs(data: Data) -> Iterator[str]:
    """The paragraphs of the textbooks."""
    return (paragraph for row in modules(data) for paragraph in row["paragraphs"])


ROWS: dict[str, Callable[[Data], Iterator[TrainingRow]]] = {
    "huatuo": answers("zh/huatuo-qa-a", ("query", "document")),
    "toyhom": answers("zh/toyhom-qa", ("query", "document"), ("question", "document")),
    "toyhom-titles": answers("zh/toyhom-qa", ("query", "question"), kind="symmetric_question"),
    "cmedqq": questions("zh/cmedqq-train"),
    "kuake-qqr": questions("zh/kuake-qqr-train"),
    "covid-pairs": questions("zh/covid-pairs-train"),
    "web-titles": web_titles,
    "chip-cdn": terms("zh/chip-cdn-train", "zh/procedure-codes"),
    "imcs-symptom": terms("zh/imcs-symptom-train", None),
    "disease-aliases": aliases,
    "disease-articles": articles,
    "icd10": translations("zh-en/icd10-names"),
    "hpo": translations("zh-en/hpo-labels"),
    "nfcorpus": nfcorpus,
    "medquad": medquad,
    "pubmedqa": answers("en/pubmedqa", ("query", "document"), ("query", "conclusion")),
    "question-pairs": questions("en/medical-question-pairs"),
    "consult": answers("en/consult-qa", ("query", "document")),
    "openstax": openstax,
    "written-titles": written("title"),
    "written-topics": written("topic"),
    "written-questions": written("question"),
    "written-short": written("short"),
    "written-search": written("search"),
    "unsup-huatuo": unsupervised(field("zh/huatuo-qa-a")),
    "unsup-toyhom": unsupervised(field("zh/toyhom-qa")),
    "unsup-textbook": unsupervised(field("zh/textbook-sentences", "text")),
    "unsup-articles": unsupervised(article_texts),
    "unsup-nfcorpus": abstracts,
    "unsup-medquad": unsupervised(field("en/medquad-qa")),
    "unsup-consult": unsupervised(field("en/consult-qa")),
    "unsup-pubmedqa": unsupervised(field("en/pubmedqa")),
    "unsup-openstax": unsupervised(paragraphs),
}


def admitted(rows: Iterable[TrainingRow], data: Data, left_out: Counter[str]) -> Iterator[TrainingRow]:
    """Clean and cut rows; leave out the empty, the repeated and those that hit a held-out text."""
    seen: set[tuple[str, str]] = set()
    for raw in rows:
        query, pos = cut(raw.query), tuple(text for item in raw.pos if (text := cut(item)))
        key = (comparable(query), comparable("".join(pos)))
        if not all(key) or key[0] == key[1]:
            left_out["empty or a copy of itself"] += 1
        elif key in seen:
            left_out["repeated"] += 1
        elif any(data.hit(text) is not None for text in (query, *pos)):
            left_out["held out"] += 1
        else:
            seen.add(key)
            neg = dict.fromkeys(text for item in raw.neg if (text := cut(item)) and text not in (query, *pos))
            yield raw._replace(query=query, pos=pos, neg=tuple(text for text in neg if data.hit(text) is None))


def thinned(rows: Iterable[TrainingRow], most: int, seed: int) -> list[TrainingRow]:
    """At most so many rows, drawn evenly, in their order."""
    kept = list(rows)
    if len(kept) <= most:
        return kept
    return [kept[at] for at in sorted(random.Random(seed).sample(range(len(kept)), most))]


def queries(data: Data) -> Iterator[Text]:
    """Everything that was asked, by people or by a language model in their place."""
    for name, fields in SPLIT.items():
        for row in data.rows(name):
            yield from (Text(row[key], "query", name) for key in fields if key not in ("document", "conclusion"))
    for name in ("zh/cmedqq-train", "zh/kuake-qqr-train", "zh/covid-pairs-train"):
        for row in data.rows(name):
            yield from (Text(row[key], "query", name) for key in ("a", "b"))
    yield from (Text(row["text"], "query", "en/nfcorpus") for row in data.rows("en/nfcorpus/queries-train"))
    yield from (Text(line.query, "query", "written") for line in data.written if line.kind != "title")


def names(data: Data) -> Iterator[Text]:
    """Names of diseases, symptoms and procedures, in either language."""
    for row in data.rows("zh/disease-aliases"):
        yield from (Text(name, "name", "zh/disease-aliases") for name in (row["name"], *row["aliases"]))
    for row in data.rows("zh/disease-articles"):
        listed = chain([row["name"]], *(row.get(key) or () for key in ("symptom", "drug", "neopathy")))
        yield from (Text(name, "name", "zh/disease-articles") for name in listed)
    for name in ("zh/chip-cdn-train", "zh/imcs-symptom-train"):
        for row in data.rows(name):
            yield from (Text(text, "name", name) for text in (row["mention"], *row["standard"].split("##")))
    yield from (Text(row["name"], "name", "zh/procedure-codes") for row in data.rows("zh/procedure-codes"))
    for name in ("zh-en/icd10-names", "zh-en/hpo-labels"):
        for row in data.rows(name):
            yield from (Text(row[key], "name", name) for key in ("zh", "en") if len(row[key]) > 1)
    yield from (Text(row["focus"], "name", "en/medquad-qa") for row in data.rows("en/medquad-qa"))


def titles(data: Data) -> Iterator[Text]:
    """Titles of textbook modules and abstracts, and sections of articles as they would be asked for."""
    for row in data.rows("zh/disease-articles"):
        for pattern in chain.from_iterable(SECTIONS.values()):
            yield Text(pattern.format(x=row["name"]), "title", "zh/disease-articles")
    yield from (Text(row.pos[0], "title", "patterns") for row in web_titles(data))
    yield from (Text(row.pos[0], "title", "written") for row in written(*TITLES)(data))
    yield from (Text(row["title"], "title", "en/openstax") for row in modules(data))
    for row in data.rows("en/nfcorpus/corpus"):
        yield Text(row["text"].partition(" abstract ")[0], "title", "en/nfcorpus")


def documents(data: Data) -> Iterator[Text]:
    """Everything that answers or teaches, in pieces no longer than an unlabelled text."""
    for name in SPLIT:
        for row in data.rows(name):
            yield from (Text(row[key], "answer", name) for key in ("document", "conclusion") if key in row)
    yield from (Text(text, "answer", "zh/disease-articles") for text in article_texts(data))
    yield from (Text(text, "answer", "en/openstax") for text in paragraphs(data))
    yield from (Text(row["text"], "answer", "en/nfcorpus") for row in data.rows("en/nfcorpus/corpus"))
    yield from (Text(row["text"], "answer", "zh/textbook-sentences") for row in data.rows("zh/textbook-sentences"))


def sentence_pool(data: Data) -> Iterator[Text]:
    """The sentences of the documents; NFCorpus has none, its punctuation was taken out."""
    for text in documents(data):
        if text.source != "en/nfcorpus":
            yield from (Text(sentence, "sentence", text.source) for sentence in sentence_texts(clean(text.text)))


def span_pool(data: Data, draw: random.Random) -> Iterator[Text]:
    """Runs of clauses of consultations and documents; runs of words where there are no clauses."""
    for text in chain(queries(data), documents(data)):
        if text.source == "written":  # short already
            continue
        if text.source == "en/nfcorpus":
            drawn = windows(text.text, 24 if text.kind == "answer" else 0, draw, shortest=1, longest=10)
        else:
            drawn = spans(clean(text.text), 24 if text.source.startswith("zh") else 16, draw, longest=3)
        longest = SPAN[text.source[:2]]
        yield from (Text(part, "span", text.source) for part in drawn if len(part) <= longest)


def draw_texts(data: Data, total: int, seed: int) -> Mix:
    """Draw the mix of unlabelled texts: what is rare and query-like first, so that a copy of it comes second."""
    draw = random.Random(seed)
    mix = Mix(data.held_out, total, LANGUAGES, SHARES, longest=TEXT)
    for make in (queries, names, titles, documents, sentence_pool, lambda data: span_pool(data, draw)):
        pool = list(make(data))
        draw.shuffle(pool)
        mix.take(pool)
    for language, (one, two) in PATTERNS.items():
        short = [text for text in mix.taken[language, "name"] if len(text.text) <= NAME[language]]
        known = [text.text for text in short for _ in range(3 if text.source in COMMON else 1)]
        mix.fill(language, "pattern", (Text(asked, "pattern", "patterns") for asked in ask(known, one, two, draw)))
    return mix


def write_lines(path: Path, records: Iterable[Mapping[str, str]]) -> None:
    """Write JSON lines, packed as small as gzip can."""
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=9) as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def make(data: Data, out: Path, total: int, seed: int) -> None:
    """Write the rows, the texts, the held-out texts and the counts."""
    counts: dict[str, Any] = {"seed": seed, "rows": {}, "left out of the rows": {}}
    for name, source in ROWS.items():
        left_out: Counter[str] = Counter()
        path = out / "rows" / f"{name}.jsonl.gz"
        kept = thinned(admitted(source(data), data, left_out), FEWER_ROWS.get(name, MOST_ROWS), seed)
        counts["rows"][name] = write_training_rows(path, kept)
        counts["left out of the rows"][name] = dict(left_out)
        if not counts["rows"][name]:
            path.unlink()
        log.info("%s: %s rows, left out: %s", name, counts["rows"][name], dict(left_out))
    mix = draw_texts(data, total, seed)
    counts["texts"] = mix.counts() | {"shares wanted": SHARES, "the rest of each language": LANGUAGES}
    # Sorted, the file packs to a half of its shuffled size; who trains on it shuffles anyway.
    ordered = (text for key in sorted(mix.taken) for text in sorted(mix.taken[key]))
    write_lines(out / "texts.jsonl.gz", (text._asdict() for text in ordered))
    write_lines(out / "held-out.jsonl.gz", ({"text": text} for text in data.held_out))
    counts["held out"] = len(data.held_out)
    (out / "counts.json").write_text(json.dumps(counts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    log.info("%s", json.dumps(counts["texts"], indent=2))


def main() -> None:
    """Write everything into a new folder, which appears when it is whole."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of the files named above")
    parser.add_argument("out", type=Path, help="a new folder for the training data")
    parser.add_argument("--texts", type=int, default=1_250_000, help="how many unlabelled texts to draw at most")
    parser.add_argument("--seed", type=int, default=0, help="for everything that is drawn")
    parser.add_argument("--written", type=Path, help="what tools/write_texts.py wrote, to be added")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if options.out.exists():
        raise SystemExit(f"{options.out} exists; remove it or choose another folder")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{options.out.name}-", dir=options.out.parent))
    try:
        make(Data(options.data, options.written), unfinished, options.texts, options.seed)
        unfinished.chmod(0o755)
        unfinished.rename(options.out)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


if __name__ == "__main__":
    main()
