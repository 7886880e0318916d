"""From verdicts to a benchmark: refined corpus, retrieval, reranking, split, training rows, card. Asks no model."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from suwen.corpora.collection import Collection, write_collection
from suwen.corpora.records import Document, Qrel, Query
from suwen.corpora.training_rows import TrainingRow, write_training_rows
from suwen.curate import CurateError, card
from suwen.curate.card import Statistics
from suwen.curate.judged_pairs import Judged, Labels, Refined, Undecided, read_judged, read_labels, refine
from suwen.curate.splitting import Guard, Split, refuse_duplicates, split_queries
from suwen.curate.suite_file import SuiteTask, suite_text
from suwen.curate.synonyms import read_pairs
from suwen.durable import new_folder, write_json, write_lines, write_text
from suwen.jury.texts import Texts
from suwen.jury.verdicts import Label, Verdict

__all__ = ["Assembled", "Assembly", "assemble", "read_labels", "refine", "sample_candidates"]
Candidates = Mapping[str, Sequence[Qrel]]


@dataclass(frozen=True)
class Assembly:
    """How a benchmark is put together.

    Attributes:
        name: Its name.
        train: The share of queries that becomes training rows instead of test.
        positives: The most positives of a query in the reranking.
        negatives: The most negatives of a query in the reranking, and in a training row.
        undecided: What happens to a document that is undecided for some test query: ``exclude`` it for that query
            alone, ``drop`` it from the corpus, or do so unless it is positive for another (``keep``; it then counts as
            a miss for the undecided one).
        near_duplicate: From which similarity two texts are one, see :class:`suwen.curate.near_duplicates.Near`.
        seed: Of every draw.
        language: ``zh`` or ``en``.
        licence: Under what terms the benchmark may be used.
    """

    name: str = "benchmark"
    train: float = 0.0
    positives: int = 10
    negatives: int = 20
    undecided: Undecided = "exclude"
    near_duplicate: float = 0.7
    seed: int = 0
    language: Literal["zh", "en"] = "zh"
    licence: str = "your own"

    def __post_init__(self) -> None:
        if self.positives < 1 or self.negatives < 1:
            raise CurateError("a reranking needs at least one positive and one negative of each query: give 1 or more")
        if not self.name.strip() or not self.name.isprintable() or "/" in self.name:
            raise CurateError(f"a benchmark cannot be called {self.name!r}: use letters, digits and dashes")


@dataclass(frozen=True)
class Assembled:
    """What was assembled.

    Attributes:
        path: The folder.
        funnel: What came in and what was left, step by step.
        statistics: One line of the table for each data set.
    """

    path: Path
    funnel: Mapping[str, int]
    statistics: Sequence[Statistics]

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON can carry it."""
        return asdict(self) | {"path": str(self.path)}


def sample_candidates(labels: Labels, settings: Assembly) -> dict[str, list[Qrel]]:
    """The candidates of a reranking: a draw of each query's positives and negatives; one without either is left out.

    A query draws by its own id, so another query more or less changes nobody else's candidates.
    """
    chosen: dict[str, list[Qrel]] = {}
    for query, own in labels.items():
        draw = random.Random(f"{settings.seed}:{query}")
        positives = _drawn(own, "positive", settings.positives, draw)
        negatives = _drawn(own, "negative", settings.negatives, draw)
        if positives and negatives:
            both = [*(Qrel(query, id_, 1) for id_ in positives), *(Qrel(query, id_, 0) for id_ in negatives)]
            draw.shuffle(both)
            chosen[query] = both
    return chosen


def _drawn(own: Mapping[str, Label], label: Label, most: int, draw: random.Random) -> list[str]:
    there = sorted(passage for passage, said in own.items() if said == label)
    return draw.sample(there, min(most, len(there)))


def assemble(
    collection: Collection, verdicts: Iterable[Verdict], out: Path, settings: Assembly, *, sts: Path | None = None
) -> Assembled:
    """Write a benchmark: ``retrieval/`` and ``rerank/`` in BEIR's layout, ``suite.toml``, ``README.md``, training rows.

    The folder is there whole or not at all.

    Args:
        collection: Where queries and documents come from.
        verdicts: The jury's, after any expert review.
        out: The folder to make.
        settings: How.
        sts: A folder of sentence pairs (``test.jsonl``) made by ``suwen curate synonyms``, taken in as a third task.
    """
    if out.exists() and (out.is_file() or any(out.iterdir())):
        raise CurateError(f"{out} is there already: remove it, or name another folder")
    every = {query.id: query.text for query in collection.queries()}
    judged = read_judged(verdicts, every, collection.documents())
    labels = judged.labels
    texts = _query_texts(collection, every, labels)
    asked = {query: text for query, text in texts.items() if "positive" in labels[query].values()}
    if not asked:
        raise CurateError("no query has a positive: look at the jury's report, or count a worse grade as positive")
    divided = split_queries(asked, settings.train, seed=settings.seed, near_duplicate=settings.near_duplicate)
    refined = refine(labels, divided.test, settings.undecided)
    if not refined.labels:
        raise CurateError(
            "no test query keeps a positive once undecided documents are out of the corpus: have more pairs reviewed, "
            "or leave them out for the undecided query alone (undecided exclude)"
        )
    with new_folder(out) as folder:
        made = _Maker(collection, texts, judged, divided, refined, settings, folder).make(sts)
    return Assembled(out, made.funnel, made.statistics)


def _query_texts(collection: Collection, every: Mapping[str, str], labels: Labels) -> dict[str, str]:
    texts = {query: text for query, text in every.items() if query in labels}
    if lost := [query for query in labels if query not in texts]:
        raise CurateError(
            f"{len(lost)} queries have verdicts and are not in {collection.path}: {', '.join(lost[:3])}; give the "
            "collection that was judged"
        )
    refuse_duplicates(texts)
    return texts


class _Maker:
    """Writes the parts of one benchmark, counting as it goes."""

    def __init__(
        self,
        collection: Collection,
        texts: Mapping[str, str],
        judged: Judged,
        divided: Split,
        refined: Refined,
        settings: Assembly,
        folder: Path,
    ) -> None:
        self.collection, self.texts, self.labels, self.grades = collection, texts, judged.labels, judged.grades
        self.divided, self.refined, self.settings, self.folder = divided, refined, settings, folder
        self.statistics: list[Statistics] = []
        self.tasks: list[SuiteTask] = []
        every = [label for own in self.labels.values() for label in own.values()]
        self.funnel: dict[str, int] = {
            "pairs_left_out_as_the_texts_have_changed": judged.stale,
            "queries_judged": len(self.labels),
            "pairs_judged": len(every),
            "pairs_positive": every.count("positive"),
            "pairs_negative": every.count("negative"),
            "pairs_undecided": every.count("undecided"),
            "queries_with_a_positive": len(divided.train) + len(divided.test) + len(divided.dropped),
            "near_duplicate_groups": divided.groups,
            "queries_dropped_for_holding_a_test_query": len(divided.dropped),
            "documents_removed_as_undecided": len(refined.removed),
            "pairs_excluded_as_undecided": sum(map(len, refined.excluded.values())),
            "test_queries": len(refined.labels),
            "test_queries_lost_with_their_documents": len(divided.test) - len(refined.labels),
        }

    def make(self, sts: Path | None) -> _Maker:
        self._retrieval()
        self._rerank()
        if sts is not None:
            self._sts(sts)
        if self.divided.train:
            self._train()
        options = {"language": self.settings.language, "licence": self.settings.licence}
        write_text(self.folder / "suite.toml", suite_text(self.settings.name, self.tasks, **options))
        settings = {key: value for key, value in asdict(self.settings).items() if key not in (*options, "name")}
        about = {"funnel": self.funnel, "settings": settings, "made": _made(self.settings)}
        write_text(self.folder / "README.md", card.card(self.settings.name, self.statistics, **options, **about))  # type: ignore[arg-type]
        write_json(self.folder / "assembly.json", {**about, "statistics": list(map(asdict, self.statistics))})
        return self

    def _retrieval(self) -> None:
        judged = {
            query: [Qrel(query, passage, int(label == "positive")) for passage, label in own.items()]
            for query, own in self.refined.labels.items()
        }
        lengths = self._write("retrieval", judged, lambda id_: id_ not in self.refined.removed)
        if excluded := self.refined.excluded:
            lines = ({"query-id": query, "corpus-ids": ids} for query, ids in excluded.items())
            write_lines(self.folder / "retrieval" / "excluded" / "test.jsonl", lines)
        self._count("retrieval", judged, "documents", len(lengths), lengths)

    def _rerank(self) -> None:
        chosen = sample_candidates(self.refined.labels, self.settings)
        self.funnel["rerank_queries"] = len(chosen)
        if not chosen:
            return
        wanted = {qrel.document_id for own in chosen.values() for qrel in own}
        lengths = self._write("rerank", chosen, wanted.__contains__)
        ranked = ({"query-id": id_, "corpus-ids": [qrel.document_id for qrel in own]} for id_, own in chosen.items())
        write_lines(self.folder / "rerank" / "top_ranked" / "test.jsonl", ranked)
        self._count("rerank", chosen, "candidates_per_query", card.mean(map(len, chosen.values())), lengths)

    def _write(self, name: str, judged: Candidates, keep: Callable[[str], bool]) -> list[int]:
        """Write a collection with its README; gives the lengths of its documents."""
        missing, lengths = {qrel.document_id for own in judged.values() for qrel in own}, list[int]()

        def corpus() -> Iterator[Document]:
            for document in self.collection.documents():
                if keep(document.id):
                    missing.discard(document.id)
                    lengths.append(len(document.title) + len(document.text))
                    yield document

        queries = [Query(query, self.texts[query]) for query in judged]
        qrels = [qrel for own in judged.values() for qrel in own]
        splits = {"test": qrels} | ({"graded": self._graded(qrels)} if name == "retrieval" and self.grades else {})
        write_collection(self.folder / name, corpus(), queries, splits)
        if missing:
            raise CurateError(
                f"{len(missing)} passages have verdicts and are not in {self.collection.path}: "
                f"{', '.join(sorted(missing)[:3])}; give the collection that was judged"
            )
        parts = {
            "corpus": {"corpus": "corpus.jsonl"},
            "queries": {"queries": "queries.jsonl"},
            "default": {"test": "qrels/test.tsv"},
        }
        if name == "rerank":
            parts["top_ranked"] = {"test": "top_ranked/test.jsonl"}
        elif "graded" in splits:
            parts["graded"] = {"test": "qrels/graded.tsv"}
        write_text(self.folder / name / "README.md", card.front_matter(parts))
        return lengths

    def _graded(self, qrels: Iterable[Qrel]) -> list[Qrel]:
        """The judgements on TREC's scale, 0 to 3; a verdict without votes has 2 or 0."""
        return [
            qrel._replace(grade=self.grades.get(qrel.query_id, {}).get(qrel.document_id, 2 * qrel.grade))
            for qrel in qrels
        ]

    def _count(self, name: str, judged: Candidates, of: str, size: float, lengths: list[int]) -> None:
        asked = card.mean(len(self.texts[query]) for query in judged)
        positives = card.mean(sum(qrel.grade for qrel in own) for own in judged.values())
        self.statistics.append(Statistics("test", name, name, len(judged), asked, size, card.mean(lengths), positives))
        counts = {"queries": len(judged), of: size, "relevant_per_query": positives}
        self.tasks.append(SuiteTask(name, name, counts))

    def _sts(self, source: Path) -> None:
        pairs = list(read_pairs(source / "test.jsonl"))
        (self.folder / "sts").mkdir()
        shutil.copyfile(source / "test.jsonl", self.folder / "sts" / "test.jsonl")
        length = card.mean(len(text) for pair in pairs for text in (pair.sentence1, pair.sentence2))
        share = card.mean(pair.score for pair in pairs)
        self.statistics.append(Statistics("test", "sts", "sts", len(pairs), length, None, None, share))
        counts = {"pairs": len(pairs)} | ({"positive_share": share} if 0 < share < 1 else {})
        self.tasks.append(SuiteTask("sts", "sts", counts))

    def _train(self) -> None:
        labels, settings = self.labels, self.settings
        positives = {p for own in self.refined.labels.values() for p, label in own.items() if label == "positive"}
        drawn = {query: _row_ids(query, labels[query], settings) for query in self.divided.train}
        with (
            tempfile.TemporaryDirectory(dir=self.folder) as folder,
            Texts(Path(folder) / "texts.db", create=True) as store,
        ):
            store.want(positives)
            store.want(id_ for part in drawn.values() for ids in part for id_ in ids)
            store.fill(self.collection.documents())
            guard = Guard(
                [self.texts[query] for query in self.divided.test],
                store.get(sorted(positives)),
                settings.near_duplicate,
            )
            counted = _Rows()
            rows = (counted.row(self.texts[query], part, store, guard) for query, part in drawn.items())
            write_training_rows(self.folder / "train.jsonl.gz", (row for row in rows if row is not None))
        self.funnel |= {
            "training_rows": len(counted.queries),
            "training_passages_dropped_as_test_positives": counted.leaks,
            "training_queries_left_without_a_positive": counted.empty,
        }
        asked, length, positive = map(card.mean, (counted.queries, counted.documents, counted.positives))
        sizes = (len(counted.queries), asked, len(counted.documents), length)
        self.statistics.append(Statistics("train", "rows", "rows", *sizes, positive))


def _row_ids(query: str, own: Mapping[str, Label], settings: Assembly) -> tuple[list[str], list[str]]:
    draw = random.Random(f"{settings.seed}:train:{query}")
    positives = _drawn(own, "positive", len(own), draw)
    return positives, _drawn(own, "negative", settings.negatives, draw)


class _Rows:
    """Makes training rows and counts what is kept out of them.

    Attributes:
        queries: The length of each query.
        documents: The length of each passage.
        positives: How many each row has.
    """

    def __init__(self) -> None:
        self.queries, self.documents, self.positives = list[int](), list[int](), list[int]()
        self.leaks = self.empty = 0

    def row(self, query: str, ids: tuple[list[str], list[str]], store: Texts, guard: Guard) -> TrainingRow | None:
        pos, neg = (self._safe(store.get(part), guard) for part in ids)
        if not pos:
            self.empty += 1
            return None
        self.queries.append(len(query))
        self.positives.append(len(pos))
        self.documents += map(len, (*pos, *neg))
        return TrainingRow(query, pos, neg)

    def _safe(self, texts: Mapping[str, str], guard: Guard) -> tuple[str, ...]:
        kept = tuple(text for id_, text in texts.items() if not guard.leaks(id_, text))
        self.leaks += len(texts) - len(kept)
        return kept


def _made(settings: Assembly) -> list[str]:
    dropped = {
        "exclude": "are not counted for that query (`retrieval/excluded`) and stay in the corpus",
        "drop": "left the corpus",
        "keep": "left the corpus unless positive for another query",
    }[settings.undecided]
    return [
        "Labels come from a jury of language models and, where there was one, expert review; each is 1 or 0, and on "
        "TREC's scale of 0 to 3 in `retrieval/qrels/graded.tsv` where there are votes.",
        f"Documents that are undecided for a test query {dropped}; documents nobody judged are in it.",
        "The reranking draws positives and negatives of each query from its judged documents.",
        "Queries that are nearly the same stand on one side of the split, and no training row holds a test query, a "
        "test positive, or what is nearly the same as one.",
    ]
