"""CMIRB's construction (AutoMIR appendix B, Algorithm 1): medical filter, matching, quality filter, with a funnel.

A document is a query's positive when a model, given nothing but the evidence it copied out of it, answers the query as
the reference does. Every step asks through the client's cache: a run that was stopped is run again and goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from suwen.corpora.collection import Collection, write_collection
from suwen.corpora.records import Document, Qrel
from suwen.corpora.tabular import records
from suwen.curate import CurateError
from suwen.curate.leakage import comparable
from suwen.curate.splitting import refuse_duplicates
from suwen.durable import write_json, write_lines
from suwen.jury.pooling import index_collection, index_retriever
from suwen.jury.texts import Texts
from suwen.llm.asker import MARKS, Asker
from suwen.llm.requests import Request
from suwen.retrieve.retriever import Index
from suwen.text.fold import fold

#: Finds documents by words: ids and scores, best first.
Search = Callable[[str, int], Sequence[tuple[str, float]]]
_DEEPEST = 2000
_NO_REFERENCE = {"zh": "（没有提供）", "en": "(none given)"}
_CHOICE = re.compile(r"\s*[（(【]?\s*([A-HＡ-Ｈ])\s*(?:[)）】:：.．、,，]|$)")


@dataclass(frozen=True)
class CmirbSettings:
    """The thresholds of the pipeline; the paper names the steps and not the numbers, but for 20 and 3.

    Attributes:
        filter_queries: Whether queries that are not medical are left out.
        filter_documents: Whether documents that are not medical leave the corpus; one request for each document.
        candidates: How many documents a word search brings.
        best: How many of them the model may choose.
        similarity: From which similarity to the reference an answer is right.
        quality: From which quality, 1 to 5, a pair stays.
    """

    filter_queries: bool = True
    filter_documents: bool = True
    candidates: int = 20
    best: int = 3
    similarity: float = 0.8
    quality: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.best <= self.candidates:
            raise CurateError(f"{self.best} of {self.candidates} candidates: give 1 <= best <= candidates")
        if not 0 <= self.similarity <= 1 or not 1 <= self.quality <= 5:
            raise CurateError("the similarity is from 0 to 1 and the quality from 1 to 5: correct the settings")


@dataclass
class CmirbFunnel:
    """What became of queries, documents and pairs, in the order of the steps; ``unanswered`` are requests of all."""

    queries: int = 0
    medical_queries: int = 0
    documents: int = 0
    medical_documents: int = 0
    candidates: int = 0
    chosen: int = 0
    with_evidence: int = 0
    answered: int = 0
    validated: int = 0
    pairs: int = 0
    kept: int = 0
    kept_queries: int = 0
    unanswered: int = 0


@dataclass
class Match:
    """A pair of query and document, and the evidence for it."""

    query_id: str
    document_id: str
    evidence: list[str] = field(default_factory=list)
    answer: str = ""
    similarity: float | None = None
    quality: int | None = None

    @property
    def key(self) -> str:
        """Its key in a step."""
        return f"{self.query_id}\t{self.document_id}"


def read_references(path: Path) -> dict[str, str]:
    """Read reference answers: ``{"_id", "answer"}`` (or ``id``, ``reference``) as jsonl, csv or tsv."""
    references: dict[str, str] = {}
    for place, record in records(path):
        id_, answer = (next((record[n] for n in names if n in record), None) for names in (_ID, _ANSWER))
        if id_ in (None, "") or not isinstance(answer, str) or not answer.strip():
            raise CurateError(f'{place}: not a reference answer; write {{"_id": "…", "answer": "…"}}')
        references[str(id_)] = answer
    return references


_ID, _ANSWER = ("_id", "id", "query_id", "query-id", "q_id"), ("answer", "reference")


class Cmirb:
    """The pipeline over one collection."""

    def __init__(
        self,
        collection: Collection,
        asker: Asker,
        texts: Texts,
        settings: CmirbSettings | None = None,
        references: Mapping[str, str] | None = None,
    ) -> None:
        """Get ready.

        Args:
            collection: Queries and documents.
            asker: The model.
            texts: Where the texts of candidates are kept meanwhile.
            settings: The thresholds.
            references: Answers by query; a query without one is validated against the document itself.
        """
        self.collection, self.asker, self._texts = collection, asker, texts
        self.settings, self.references = settings or CmirbSettings(), references or {}
        self.queries = {query.id: query.text for query in collection.queries()}
        if not self.queries:
            raise CurateError(f"{collection.path} has no queries: add queries.jsonl")
        refuse_duplicates(self.queries)
        if unknown := [id_ for id_ in self.references if id_ not in self.queries]:
            raise CurateError(f"{len(unknown)} reference answers are of unknown queries: {', '.join(unknown[:3])}")
        self.funnel = CmirbFunnel(queries=len(self.queries))
        self.removed: set[str] = set()

    def run(self, search: Search | None) -> list[Match]:
        """All steps; with no ``search``, the pairs of the collection's own qrels are taken for matched.

        A query without a reply is left out; a document whose medical filter got none stays.
        """
        self._keep_medical()
        matches = self._given() if search is None else self._validated(self._answered(self._matched(search)))
        self.funnel.pairs = len(matches)
        kept = self._good(matches)
        self.funnel.kept, self.funnel.kept_queries = len(kept), len({match.query_id for match in kept})
        self.funnel.unanswered = self.asker.failed
        return kept

    def write(self, matches: Sequence[Match], out: Path) -> None:
        """Write the pairs that were kept as a collection, with ``matches.jsonl`` and ``funnel.json`` beside it."""
        if not matches:
            raise CurateError(f"no pair was kept: {asdict(self.funnel)}; the first problem: {self.asker.problem}")
        asked = {match.query_id for match in matches}
        queries = [query for query in self.collection.queries() if query.id in asked]
        documents = (document for document in self.collection.documents() if document.id not in self.removed)
        qrels = [Qrel(match.query_id, match.document_id, 1) for match in matches]
        write_collection(out, documents, queries, {"test": qrels})
        write_lines(out / "about" / "matches.jsonl", map(asdict, matches))
        write_json(out / "about" / "funnel.json", asdict(self.funnel))

    def _keep_medical(self) -> None:
        if self.settings.filter_queries:
            said = self._medical("medical queries", self.queries.items())
            self.queries = {id_: text for id_, text in self.queries.items() if said.get(id_)}
        self.funnel.medical_queries = len(self.queries)
        if self.settings.filter_documents:
            said = self._medical("medical documents", ((one.id, one.content) for one in self._counted()))
            self.removed = {id_ for id_, medical in said.items() if not medical}
        else:
            self.funnel.documents = sum(1 for _ in self.collection.documents())
        self.funnel.medical_documents = self.funnel.documents - len(self.removed)

    def _counted(self) -> Iterator[Document]:
        for document in self.collection.documents():
            self.funnel.documents += 1
            yield document

    def _medical(self, step: str, items: Iterable[tuple[str, str]]) -> dict[str, bool]:
        requests = (self.asker.request("cmirb-medical", {"text": text}, key=id_, long=("text",)) for id_, text in items)
        return self.asker.ask(step, requests, lambda data: bool(data["medical"]), lambda _: True)

    def _given(self) -> list[Match]:
        qrels = self.collection.qrels()
        matches = [
            Match(query, document)
            for query, grades in qrels.items()
            for document, grade in grades.items()
            if grade > 0 and query in self.queries and document not in self.removed
        ]
        if not matches:
            raise CurateError(f"{self.collection.path} has no judged pair left to score: give qrels, or match")
        self._fetch(match.document_id for match in matches)
        return matches

    def _fetch(self, ids: Iterable[str]) -> None:
        self._texts.want(ids)
        self._texts.fill(self.collection.documents())

    def _request(self, prompt: str, match: Match, **texts: str) -> Request:
        """A question about one pair; texts that are too long for the model's context are cut."""
        values = {"query": self.queries[match.query_id], **texts}
        return self.asker.request(prompt, values, key=match.key, long=tuple(texts))

    def _text(self, match: Match) -> str:
        return self._texts.get([match.document_id])[match.document_id]

    def _matched(self, search: Search) -> list[Match]:
        """Word search, then the model's choice of it."""
        candidates = {id_: self._candidates(text, search) for id_, text in self.queries.items()}
        candidates = {id_: ids for id_, ids in candidates.items() if ids}
        if self.queries and not candidates:
            raise CurateError("the word search found nothing for any query: is the index one of this collection?")
        self.funnel.candidates = sum(map(len, candidates.values()))
        self._fetch(id_ for ids in candidates.values() for id_ in ids)
        chosen = self.asker.ask(
            "choose",
            (self._choice(id_, ids) for id_, ids in candidates.items()),
            lambda data: [int(label[1:]) - 1 for label in data["best"]],
            lambda request: list(range(min(self.settings.best, len(candidates[request.key])))),
        )
        matches = [Match(id_, ids[place]) for id_, ids in candidates.items() for place in chosen.get(id_, ())]
        self.funnel.chosen = len(matches)
        return matches

    def _candidates(self, query: str, search: Search) -> list[str]:
        wanted = depth = self.settings.candidates
        while True:
            hits = search(query, depth)
            left = [id_ for id_, _ in hits if id_ not in self.removed][:wanted]
            if len(left) == wanted or len(hits) < depth or depth >= _DEEPEST:
                return left
            depth = min(2 * depth, _DEEPEST)

    def _choice(self, query: str, ids: Sequence[str]) -> Request:
        def wrong(data: Any) -> str | None:
            numbers = [int(label[1:]) for label in data["best"]]
            if len(numbers) > self.settings.best:
                return f"{len(numbers)} passages are chosen, {self.settings.best} are the most"
            unknown = [number for number in numbers if not 1 <= number <= len(ids)]
            return f"there is no passage P{unknown[0]}" if unknown else None

        texts = self._texts.get(ids)
        values: dict[str, str | int | float] = {
            "query": self.queries[query],
            "count": len(ids),
            "most": self.settings.best,
        }
        return self.asker.batch("cmirb-rerank", values, [texts[id_] for id_ in ids], key=query, check=wrong)

    def _answered(self, matches: Sequence[Match]) -> list[Match]:
        """Evidence copied out of the document, then an answer from it alone."""
        unknown = _NO_REFERENCE[self.asker.language]
        evidence = (
            self._request(
                "cmirb-evidence",
                match,
                reference=self.references.get(match.query_id) or unknown,
                passage=self._text(match),
            )
            for match in matches
        )
        spans = self.asker.ask("evidence", evidence, lambda data: list(data["spans"]), lambda _: [])
        for match in matches:
            match.evidence = self._copied(match, spans.get(match.key, ()))
        matches = [match for match in matches if match.evidence]
        self.funnel.with_evidence = len(matches)
        said = self.asker.ask(
            "answer",
            (self._request("cmirb-answer", match, evidence="\n".join(match.evidence)) for match in matches),
            lambda data: str(data["answer"]).strip() if data["answerable"] else "",
            lambda _: "…" * (self.asker.config.max_tokens // 2),
        )
        for match in matches:
            match.answer = said.get(match.key, "")
        matches = [match for match in matches if match.answer]
        self.funnel.answered = len(matches)
        return matches

    def _copied(self, match: Match, spans: Iterable[str]) -> list[str]:
        """The spans that stand in the document: a model that rewords or invents has shown no evidence."""
        if self.asker.dry_run:
            return [self._text(match)]
        text, mark = comparable(self._text(match)), MARKS[self.asker.language]
        bare = (span.replace(mark, "").strip() for span in spans)
        return [span for span in bare if (own := comparable(span)) and own in text]

    def _validated(self, matches: Sequence[Match]) -> list[Match]:
        """The pairs whose answer is the reference's: by the letter where both choose one, else as the model says."""
        open_ = []
        for match in matches:
            letters = choice(match.answer), choice(self.references.get(match.query_id, ""))
            if all(letters):
                match.similarity = float(letters[0] == letters[1])
            else:
                open_.append(match)
        compared = (
            self._request(
                "cmirb-validate",
                match,
                reference=self.references.get(match.query_id) or self._text(match),
                answer=match.answer,
            )
            for match in open_
        )
        said = self.asker.ask("validate", compared, lambda data: float(data["similarity"]), lambda _: 1.0)
        for match in open_:
            match.similarity = said.get(match.key)
        kept = [m for m in matches if m.similarity is not None and m.similarity >= self.settings.similarity]
        self.funnel.validated = len(kept)
        return kept

    def _good(self, matches: Sequence[Match]) -> list[Match]:
        pairs = (self._request("cmirb-quality", match, passage=self._text(match)) for match in matches)
        said = self.asker.ask("quality", pairs, lambda data: int(data["quality"]), lambda _: 5)
        for match in matches:
            match.quality = said.get(match.key)
        return [m for m in matches if m.quality is not None and m.quality >= self.settings.quality]


def build_cmirb(
    collection: Collection,
    out: Path,
    asker: Asker,
    work: Path,
    settings: CmirbSettings | None = None,
    *,
    references: Mapping[str, str] | None = None,
    match: bool = True,
    pair: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CmirbFunnel:
    """Run the pipeline over a collection and write what it keeps; a dry run writes nothing.

    Args:
        collection: Queries and documents.
        out: The folder to make.
        asker: The model.
        work: The folder of the index and the texts.
        settings: The thresholds.
        references: Answers by query.
        match: Search for pairs by words; otherwise those of the collection's qrels are taken.
        pair: The pair the index is made with.
        progress: Called with the documents read and the passages encoded.
    """
    if out.exists() and (out.is_file() or any(out.iterdir())):
        raise CurateError(f"{out} is there already: remove it, or name another folder")
    work.mkdir(parents=True, exist_ok=True)
    # Only this run's texts: the collection may have changed since the last.
    (work / "texts.db").unlink(missing_ok=True)
    with ExitStack() as stack:
        texts = stack.enter_context(Texts(work / "texts.db", create=True))
        pipeline, search = Cmirb(collection, asker, texts, settings, references), None
        if match:
            index_collection(collection, work / "index", pair=pair, progress=progress)
            search = index_retriever(stack.enter_context(Index.open(work / "index", pair=pair)), "lexical").search
        kept = pipeline.run(search)
        if not asker.dry_run:
            pipeline.write(kept, out)
    return pipeline.funnel


def choice(text: str) -> str | None:
    """The option a multiple-choice answer begins with.

    >>> choice("D：淋巴转移"), choice("Ｂ"), choice("Aspirin")
    ('D', 'B', None)
    """
    chosen = _CHOICE.match(text)
    return fold(chosen[1]).upper() if chosen else None
