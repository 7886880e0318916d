"""BMRetriever's evaluation sets that nobody hands out as collections, built from local copies of their sources.

The paper says how many queries and documents each has, and little else (appendix B.3, Table 10): what was chosen where
it is silent stands in docs/benchmarks.md. Its own corpora and judgements are not released.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

from suwen.bench.task_data import DataError
from suwen.corpora.collection import write_collection
from suwen.corpora.files import CorpusError, read_text
from suwen.corpora.pubmed import is_xml, read_abstracts, source_files
from suwen.corpora.record_fields import find_field
from suwen.corpora.records import Document, Qrel, Query
from suwen.corpora.tabular import records
from suwen.corpora.xml_files import xml_elements
from suwen.curate.convert import ORIGINS, named
from suwen.curate.screening import draw
from suwen.durable import write_json
from suwen.text.clean import clean

#: Table 10: what is drawn where a source has more.
_QUERIES, _DOCUMENTS = 500, 500_000
_PMID = re.compile(r"(?:^|/)(\d+)/?$")
#: RELISH's words for its grades; SciRepEval writes the numbers.
_GRADES = {"relevant": 2, "partial": 1, "irrelevant": 0}
_QUESTION, _ANSWER = ("input", "question", "query"), ("answer_icliniq", "output", "answer", "document")
_SPEAKER = re.compile(r"\s*(?:patient|doctor)\s*:\s*", re.IGNORECASE)
#: PubMedQA's other parts, by their names on GitHub and on the hub.
_UNLABELLED = re.compile("pqaa|pqau|artificial|unlabel")
_DRUG_COLUMNS = (("drugbank-id", "DrugBank ID", "drugbank_id", "id"), ("name", "Common name"), ("description",))


@dataclass(frozen=True)
class Wanted:
    """What a user may say of a set beside its sources.

    Attributes:
        abstracts: PubMed's, where the source names articles by their ids.
        test: Ids of the questions to ask, as PubMedQA's ``test_ground_truth.json`` has them.
        group: Of DrugBank, only drugs of this group, such as ``approved``.
        queries: Draw so many queries; the paper's number where it has fewer than its source.
        documents: Of BioASQ, about so many documents; the paper's number unless given.
        encoding: Of abstracts in text files.
        seed: Of the draws.
    """

    abstracts: Path | None = None
    test: Path | None = None
    group: str | None = None
    queries: int | None = None
    documents: int | None = None
    encoding: str = "utf-8"
    seed: int = 0


class Entry(NamedTuple):
    """A query with the text that answers it; ``asked`` is false where only the text is of use."""

    id: str
    query: str
    text: str
    asked: bool = True


@dataclass
class Pool:
    """What a builder gathers while documents stream by: queries, judgements, and what was left out."""

    queries: dict[str, str] = field(default_factory=dict)
    grades: defaultdict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    counts: Counter[str] = field(default_factory=Counter)
    progress: Callable[[int, int], None] | None = None

    def read(self, what: str) -> None:
        """Count what was read, and tell of it every thousand."""
        self.counts[what] += 1
        if self.progress is not None and self.counts[what] % 1000 == 0:
            self.progress(self.counts[what], 0)

    def pairs(self, entries: Iterable[Entry]) -> Iterator[Document]:
        """The texts of entries as documents: one that comes again is the same document, and so is a query."""
        texts: dict[str, str] = {}
        asked: dict[str, str] = {}
        ids: set[str] = set()
        for entry in entries:
            self.read("records")
            query, text = clean(entry.query or ""), clean(entry.text or "")
            if not query or not text or entry.id in ids:
                self.counts["ids_repeated" if entry.id in ids else "without_text"] += 1
                continue
            ids.add(entry.id)
            self.counts["documents_repeated"] += text in texts
            if text not in texts:
                yield Document(entry.id, text)
            document = texts.setdefault(text, entry.id)
            if entry.asked:
                self.counts["queries_repeated"] += query in asked
                self.queries[asked.setdefault(query, entry.id)] = query
                self.grades[asked[query]][document] = 1

    def keep(self, there: Container[str]) -> None:
        """Drop the judgements of documents that the abstracts do not have."""
        judged = {document for grades in self.grades.values() for document in grades}
        self.counts["judged_articles_that_are_not_here"] = sum(document not in there for document in judged)
        for query, grades in self.grades.items():
            self.grades[query] = {document: grade for document, grade in grades.items() if document in there}

    def chosen(self, most: int | None, seed: int) -> Iterator[Query]:
        """The queries that are measured."""
        for id_, text in list(self.queries.items()):
            if not clean(text) or not any(self.grades[id_].values()):
                del self.queries[id_]
                self.counts["queries_without_a_relevant_document" if clean(text) else "queries_without_text"] += 1
        kept = draw(self.queries, most or len(self.queries), seed)
        self.counts.update(queries=len(kept), queries_not_drawn=len(self.queries) - len(kept))
        if not kept:
            raise DataError(f"nothing is written, for no query is left of what was read ({dict(self.counts)})")
        self.queries = {id_: self.queries[id_] for id_ in kept}
        yield from (Query(id_, text) for id_, text in self.queries.items())

    def judgements(self) -> Iterator[Qrel]:
        """Those of the queries that were chosen."""
        for query in self.queries:
            self.counts["judgements"] += len(self.grades[query])
            yield from (Qrel(query, document, grade) for document, grade in self.grades[query].items())


class Builder(NamedTuple):
    """How the documents of a set come about, what it is built from, and how many queries the paper takes of it."""

    documents: Callable[[Pool, Sequence[Path], Wanted], Iterator[Document]]
    source: str
    queries: int | None = None


def build(
    name: str,
    sources: Sequence[Path],
    to: Path,
    wanted: Wanted | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Counter[str]:
    """Write an evaluation set as a collection, which is there whole or not at all; gives what became of what was read.

    Args:
        name: One of :data:`BUILDERS`.
        sources: Its files, or folders of them.
        to: The collection to make. The counts are in its ``about/counts.json``, too.
        wanted: What else was said.
        progress: Called with the records or articles read and 0 (their end is not known), every thousand.

    Raises:
        DataError: There is no such set, or a source is not what it should be; the message says what is needed.
    """
    if name not in BUILDERS:
        raise DataError(f"there is no builder for {name!r}: choose {', '.join(BUILDERS)}; the others can be downloaded")
    builder, wanted, pool = BUILDERS[name], wanted or Wanted(), Pool(progress=progress)

    def counted() -> Iterator[Document]:
        for document in builder.documents(pool, sources, wanted):
            pool.counts["documents"] += 1
            yield document

    queries = pool.chosen(wanted.queries or builder.queries, wanted.seed)
    try:
        write_collection(to, counted(), queries, {"test": pool.judgements()})
    except (CorpusError, DataError) as problem:
        raise DataError(f"{name}: {problem}. It is built from {builder.source}") from problem
    write_json(to / "about" / "counts.json", dict(pool.counts))
    return pool.counts


def _records(sources: Sequence[Path]) -> Iterator[tuple[Path, str, Mapping[str, Any]]]:
    for path in chain.from_iterable(map(source_files, sources)):
        if is_xml(path):
            raise DataError(f"{path}: an XML file where JSON belongs")
        yield from ((path, place, record) for place, record in records(path))


# -- a query and the text that answers it ----------------------------------------------------------------------------


def _icliniq(pool: Pool, sources: Sequence[Path], wanted: Wanted) -> Iterator[Document]:
    """Every question with the doctor's first answer; other sites' are left out."""

    def entries() -> Iterator[Entry]:
        for number, (path, place, record) in enumerate(_records(sources)):
            origin = (path.name, *(str(record.get(name, "")) for name in ORIGINS))
            if "answer_icliniq" not in record and not named(["icliniq"], origin):
                pool.counts["of_another_site"] += 1
                continue
            if turns := record.get("utterances") or record.get("dialogue_turns"):
                # On the hub a column of lists, in JSON a list of turns.
                turns = turns["utterance"] if isinstance(turns, Mapping) else turns
                said = [turn["utterance"] if isinstance(turn, Mapping) else turn for turn in turns]
            else:
                said = [record[find_field(record, names, place)] for names in (_QUESTION, _ANSWER)]
            query, answer = (_SPEAKER.sub("", text or "", 1) for text in [*said, "", ""][:2])
            yield Entry(f"icliniq-{number}", query, answer)

    return pool.pairs(entries())


def _pubmedqa(pool: Pool, sources: Sequence[Path], wanted: Wanted) -> Iterator[Document]:
    """Questions of the labelled part, over the abstracts (without their conclusions) of every file that is given."""
    test = set(json.loads(read_text(wanted.test))) if wanted.test else None
    files = [path for source in sources for path in source_files(source) if "ground_truth" not in path.name]
    labelled = {path for path in files if not _UNLABELLED.search(f"{path.parent.name}/{path.name}")}
    if not labelled:
        raise DataError("no file of the labelled part is among the sources, and only its questions are asked")

    def entries() -> Iterator[Entry]:
        for path, place, record in _records(files):
            id_ = str(record[find_field(record, ("_id", "pubid", "id", "pmid"), place)])
            context = record[find_field(record, ("CONTEXTS", "context", "document"), place)]
            context = context.get("contexts", "") if isinstance(context, Mapping) else context
            asked = path in labelled and (test is None or id_ in test)
            pool.counts["questions_not_of_the_test"] += path in labelled and not asked
            question = record[find_field(record, ("QUESTION", "question", "query"), place)]
            yield Entry(id_, question, context if isinstance(context, str) else " ".join(context), asked)

    return pool.pairs(entries())


def _drugbank(pool: Pool, sources: Sequence[Path], wanted: Wanted) -> Iterator[Document]:
    """A drug's name, and its description."""

    def entries() -> Iterator[Entry]:
        for id_, name, text, groups in _drugs(sources):
            if wanted.group is None or wanted.group in re.findall(r"\w+", groups):
                yield Entry(id_, name, text)
            else:
                pool.counts["of_another_group"] += 1

    return pool.pairs(entries())


def _drugs(sources: Sequence[Path]) -> Iterator[tuple[str, str, str, str]]:
    """Id, name, description and groups of every drug."""
    for path in chain.from_iterable(map(source_files, sources)):
        if is_xml(path):
            for _, drug in xml_elements(path, "drug"):
                id_ = _said(drug, "{*}drugbank-id[@primary='true']") or _said(drug, "{*}drugbank-id")
                groups = " ".join(group.text or "" for group in drug.iterfind("{*}groups/{*}group"))
                yield id_, _said(drug, "{*}name"), _said(drug, "{*}description"), groups
            continue
        for place, record in records(path):
            # DrugBank's vocabulary has no descriptions, and is refused here with the columns it has.
            id_, name, text = (str(record[find_field(record, names, place)] or "") for names in _DRUG_COLUMNS)
            yield id_, name, text, str(record.get("groups") or "")


def _mesh(pool: Pool, sources: Sequence[Path], wanted: Wanted) -> Iterator[Document]:
    """A descriptor's name, and the scope note of its preferred concept."""
    note = "ConceptList/Concept[@PreferredConceptYN='Y']/ScopeNote"
    return pool.pairs(
        Entry(_said(node, "DescriptorUI"), _said(node, "DescriptorName/String"), _said(node, note))
        for path in chain.from_iterable(map(source_files, sources))
        for _, node in xml_elements(path, "DescriptorRecord")
    )


def _said(node: Element, path: str) -> str:
    return node.findtext(path) or ""


# -- articles of PubMed ----------------------------------------------------------------------------------------------


def _abstracts(pool: Pool, wanted: Wanted, ids: Container[str] | None = None) -> Iterator[Document]:
    """The articles with an abstract, of some ids or of any, each once."""
    if wanted.abstracts is None:
        raise DataError("its source names articles by their PubMed ids: give their abstracts (--abstracts)")
    written = set[str]()
    for article in read_abstracts(wanted.abstracts, wanted.encoding):
        pool.read("articles_read")
        if ids is None or (article.id in ids and article.id not in written):
            written.update([article.id] if ids is not None and article.text else ())
            pool.counts["articles_without_an_abstract"] += not article.text
            if article.text:
                yield article


def _bioasq(pool: Pool, sources: Sequence[Path], wanted: Wanted) -> Iterator[Document]:
    """Questions with the articles that experts found for them, among others that are drawn: two readings."""
    asked = {
        str(record[find_field(record, ("id", "_id"), place)]): (
            str(record[find_field(record, ("body",), place)]),
            {found[1]: 1 for url in record[find_field(record, ("documents",), place)] if (found := _PMID.search(url))},
        )
        for _, place, record in _records(sources)
    }
    for id_ in draw(asked, wanted.queries or _QUERIES, wanted.seed):
        pool.queries[id_], pool.grades[id_] = asked[id_]
    pool.counts.update(records=len(asked), queries_not_drawn=len(asked) - len(pool.queries))
    judged, there = {article for grades in pool.grades.values() for article in grades}, set[str]()

    def others() -> Iterator[str]:
        for article in _abstracts(pool, wanted):
            if article.id in judged:
                there.add(article.id)
            else:
                yield article.id

    drawn = draw(others(), max(0, (wanted.documents or _DOCUMENTS) - len(judged)), wanted.seed)
    pool.keep(there)
    yield from _abstracts(pool, wanted, there.union(drawn))


def _relish(pool: Pool, sources: Sequence[Path], wanted: Wanted) -> Iterator[Document]:
    """Articles with those judged beside them: RELISH's own file, which has their ids alone, or SciRepEval's rows."""
    written = set[str]()
    for _, place, record in _records(sources):
        pool.read("records")
        if "response" in record:
            seed = {"doc_id": record[find_field(record, ("pmid",), place)]}
            graded = {str(id_): _GRADES[word] for word in _GRADES for id_ in record["response"].get(word) or ()}
        else:
            seed = record[find_field(record, ("query",), place)]
            candidates = {str(one["doc_id"]): one for one in record[find_field(record, ("candidates",), place)]}
            if not isinstance(seed, Mapping):
                raise DataError(f"{place}: the query is no article, with doc_id, title and abstract")
            for id_, one in candidates.items():
                if id_ not in written and _article(one):
                    written.add(id_)
                    yield Document(id_, _article(one))
            graded = {id_: int(one["score"]) for id_, one in candidates.items() if id_ in written}
        id_ = str(seed["doc_id"])
        pool.queries[id_], known = _article(seed), pool.grades[id_]
        pool.counts["judged_twice"] += len(known.keys() & graded.keys())
        pool.grades[id_] = known | {one: max(grade, known.get(one, 0)) for one, grade in graded.items()}
    if not written:
        yield from _judged(pool, wanted)


def _judged(pool: Pool, wanted: Wanted) -> Iterator[Document]:
    """The abstracts of judged articles; those of the articles they were judged for become queries."""
    judged = {id_ for grades in pool.grades.values() for id_ in grades}
    there = set[str]()
    for article in _abstracts(pool, wanted, judged | pool.queries.keys()):
        if article.id in pool.queries:
            pool.queries[article.id] = f"{article.title} {article.text}"
        if article.id in judged:
            there.add(article.id)
            yield article
    pool.keep(there)


def _article(said: Mapping[str, Any]) -> str:
    """Title and abstract, joined as documents are when they are measured."""
    return clean(f"{said.get('title') or ''} {said.get('abstract') or ''}")


#: By the names that the suite ``bmretriever`` has for them.
BUILDERS = {
    "BioASQ": Builder(
        _bioasq,
        "BioASQ's Task B questions (trainingNb.json, or a folder of NBM_golden.json files) and PubMed's abstracts "
        "(--abstracts: the baseline's .xml.gz files, MedRAG's jsonl, or allMeSH_YEAR.json with --encoding iso-8859-1)",
    ),
    "PubMedQA": Builder(
        _pubmedqa,
        "ori_pqal.json and, for the paper's 211K documents, ori_pqaa.json, or the hub's pqa_labeled and pqa_artificial "
        "folders; --test test_ground_truth.json asks the 500 questions of the official test",
        _QUERIES,
    ),
    "iCliniq": Builder(
        _icliniq,
        "ChatDoctor's iCliniq.json (input, answer_icliniq), MedDialog's dialogues (of which iCliniq's are taken), or "
        "rows of source, query and document",
    ),
    "DrugBank": Builder(
        _drugbank,
        "the full database (full database.xml, unpacked), or a table with DrugBank's id, name and description; its "
        "vocabulary has no descriptions",
    ),
    "MeSH": Builder(
        _mesh,
        "MeSH's descriptors as XML (descYEAR.xml or .gz, not the ASCII file dYEAR.bin); qualifiers and supplementary "
        "records are not taken",
    ),
    "RELISH": Builder(
        _relish,
        "SciRepEval's rows (relish/*.parquet: query, candidates), or RELISH_v1.json (pmid, response) with PubMed's "
        "abstracts (--abstracts)",
    ),
}
