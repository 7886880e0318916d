"""BMRetriever's evaluation sets that nobody hands out as collections, built from local copies of their sources.

The paper says how many queries and documents each has, and little else (appendix B.3, Table 10): what was chosen where
it is silent stands in docs/benchmarks.md. Its own corpora and judgements are not released.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple

from suwen.bench.evaluation_pool import Entry, Pool
from suwen.bench.evaluation_records import LeftOut, Record, read_dialogue_sources, read_sources
from suwen.bench.task_data import DataError
from suwen.corpora.collection import write_collection
from suwen.corpora.files import CorpusError, read_text
from suwen.corpora.pubmed import is_xml, read_abstracts, source_files
from suwen.corpora.records import Document
from suwen.corpora.xml_files import xml_elements
from suwen.curate.convert import ORIGINS, named
from suwen.curate.screening import draw
from suwen.durable import write_json
from suwen.text.clean import clean

#: Table 10: what is drawn where a source has more.
_QUERIES, _DOCUMENTS = 500, 500_000
_PMID = re.compile(r"(?:^|/)(\d+)/?$")
#: RELISH's words for its grades; SciRepEval writes the numbers.
#: An article under two of them has the last, the highest.
_GRADES = {"irrelevant": 0, "partial": 1, "relevant": 2}
_QUESTION, _ANSWER = ("input", "question", "query"), ("answer_icliniq", "output", "answer", "document")
_SPEAKER = re.compile(r"\s*(patient|doctor)\s*:\s*", re.IGNORECASE)
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


# -- a query and the text that answers it ----------------------------------------------------------------------------


def _icliniq(pool: Pool, sources: Sequence[Path], wanted: Wanted) -> Iterator[Document]:
    """Every question with the doctor's first answer; other sites' are left out."""
    number = count()

    def entry(record: Record) -> Entry:
        id_, site = f"icliniq-{next(number)}", [record.path.name, *(str(record.said.get(name, "")) for name in ORIGINS)]
        if "answer_icliniq" not in record.said and not named(["icliniq"], site):
            raise LeftOut("of_another_site", f"{record.place}: nothing in it names iCliniq")
        query, answer = [*_turns(record), "", ""][:2]
        who = [(said := _SPEAKER.match(text)) and said[1].lower() for text in (query, answer)]
        if who[0] == "doctor" or who[1] == "patient":
            why = "its first turns are not a patient's and a doctor's"
            raise LeftOut("not_a_question_and_its_answer", f"{record.place}: {why}")
        return Entry(id_, _SPEAKER.sub("", query, 1), _SPEAKER.sub("", answer, 1))

    return pool.pairs(pool.made(read_dialogue_sources(sources), entry))


def _turns(record: Record) -> list[str]:
    """What was said: turns of a dialogue, or a question and its answer."""
    name = next(filter(record.has, ("utterances", "dialogue_turns")), None)
    if name is None:
        return [record.text(*names) for names in (_QUESTION, _ANSWER)]
    if record.holds(dict, name):  # on the hub a column of lists
        return record.inside(name).texts("utterance")
    if any(isinstance(turn, Mapping) for turn in record.items(name)):
        return [turn.text("utterance") for turn in record.each(name)]
    return record.texts(name)


def _pubmedqa(pool: Pool, sources: Sequence[Path], wanted: Wanted) -> Iterator[Document]:
    """Questions of the labelled part, over the abstracts (without their conclusions) of every file that is given."""
    test = _test_ids(wanted.test) if wanted.test else None
    files = [path for source in sources for path in source_files(source) if "ground_truth" not in path.name]
    labelled = {path for path in files if not _UNLABELLED.search(f"{path.parent.name}/{path.name}")}
    if not labelled:
        raise DataError("no file of the labelled part is among the sources, and only its questions are asked")
    files.sort(key=lambda path: path not in labelled)  # of an id that comes again the first record counts
    missing = set(test or ())
    pool.counts["questions_of_the_test_that_are_not_here"] = len(missing)

    def entry(record: Record) -> Entry:
        id_ = record.id("_id", "pubid", "id", "pmid")
        asked = record.path in labelled and (test is None or id_ in test)
        made = Entry(id_, record.text("QUESTION", "question", "query"), _context(record), asked)
        pool.counts["questions_not_of_the_test"] += record.path in labelled and not asked
        missing.difference_update([id_] if asked else ())
        pool.counts["questions_of_the_test_that_are_not_here"] = len(missing)
        return made

    return pool.pairs(pool.made(read_sources(files), entry))


def _test_ids(file: Path) -> set[str]:
    """The ids that a file of answers has, by id or as a list."""
    try:
        said = json.loads(read_text(file))
    except (ValueError, RecursionError) as problem:
        raise DataError(f"{file}: not valid JSON ({problem}); get it again") from None
    if not isinstance(said, Mapping | list) or not said:
        raise DataError(f'{file}: no ids of questions; it must be like {{"12377809": "yes"}}, or a list of ids')
    return set(Record({"ids": list(said)}, str(file)).ids("ids"))


def _context(record: Record) -> str:
    """An abstract: a text, its paragraphs, or on the hub an object with its paragraphs."""
    names: tuple[str, ...] = ("CONTEXTS", "context", "document")
    if record.holds(dict, *names):
        record, names = record.inside(*names), ("contexts",)
    return " ".join(record.texts(*names)) if record.holds(list, *names) else record.text(*names)


def _drugbank(pool: Pool, sources: Sequence[Path], wanted: Wanted) -> Iterator[Document]:
    """A drug's name, and its description."""

    def entry(record: Record) -> Entry:
        if wanted.group is not None and wanted.group not in re.findall(r"\w+", str(record.said.get("groups") or "")):
            raise LeftOut("of_another_group", f"{record.place}: not of the group {wanted.group!r}")
        # DrugBank's vocabulary has no descriptions, and is refused here with the columns it has.
        id_, name, text = _DRUG_COLUMNS
        return Entry(record.id(*id_), record.text(*name), record.text(*text))

    return pool.pairs(pool.made(_drugs(sources), entry))


def _drugs(sources: Sequence[Path]) -> Iterator[Record]:
    """Every drug, by the names of a table's columns."""
    for path in chain.from_iterable(map(source_files, sources)):
        if not is_xml(path):
            yield from read_sources([path])
            continue
        for place, drug in xml_elements(path, "drug"):
            id_ = drug.findtext("{*}drugbank-id[@primary='true']") or drug.findtext("{*}drugbank-id")
            said = {name: drug.findtext(f"{{*}}{name}") for name in ("name", "description")}
            groups = " ".join(group.text or "" for group in drug.iterfind("{*}groups/{*}group"))
            yield Record({"drugbank-id": id_, **said, "groups": groups}, place)


def _mesh(pool: Pool, sources: Sequence[Path], wanted: Wanted) -> Iterator[Document]:
    """A descriptor's name, and the scope note of its preferred concept."""
    note = "ConceptList/Concept[@PreferredConceptYN='Y']/ScopeNote"
    descriptors = (
        Record({name: node.findtext(name) for name in ("DescriptorUI", "DescriptorName/String", note)}, place)
        for path in chain.from_iterable(map(source_files, sources))
        for place, node in xml_elements(path, "DescriptorRecord")
    )
    return pool.pairs(
        pool.made(
            descriptors,
            lambda one: Entry(one.id("DescriptorUI"), one.text("DescriptorName/String"), one.text(note)),
        )
    )


# -- articles of PubMed ----------------------------------------------------------------------------------------------


def _abstracts(pool: Pool, wanted: Wanted, ids: Container[str] | None = None) -> Iterator[Document]:
    """The articles with an abstract, of some ids or of any, each once."""
    if wanted.abstracts is None:
        raise DataError("its source names articles by their PubMed ids: give their abstracts (--abstracts)")
    written = set[str]()
    bad = partial(pool.leave_out, "articles_without_an_id_or_a_text")
    for article in read_abstracts(wanted.abstracts, wanted.encoding, bad):
        pool.read("articles_read")
        if ids is None or (article.id in ids and article.id not in written):
            written.update([article.id] if ids is not None and article.text else ())
            pool.counts["articles_without_an_abstract"] += not article.text
            if article.text:
                yield article


def _bioasq(pool: Pool, sources: Sequence[Path], wanted: Wanted) -> Iterator[Document]:
    """Questions with the articles that experts found for them, among others that are drawn: two readings."""
    asked = dict[str, tuple[str, dict[str, int]]]()
    for id_, text, found in pool.made(read_sources(sources), _question):
        # A file of a year may have the questions of the years before it.
        pool.counts["ids_repeated"] += id_ in asked
        asked.setdefault(id_, (text, {}))[1].update(dict.fromkeys(found, 1))
    if not asked:
        raise pool.nothing_left()
    for id_ in draw(asked, wanted.queries or _QUERIES, wanted.seed):
        pool.queries[id_], pool.grades[id_] = asked[id_]
    pool.counts["queries_not_drawn"] += len(asked) - len(pool.queries)
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


def _question(record: Record) -> tuple[str, str, list[str]]:
    """A question's id, its text, and the PubMed ids of its articles."""
    found = [match[1] for address in record.texts("documents") if (match := _PMID.search(address))]
    if not (text := record.text("body")):
        raise LeftOut("without_text", f"{record.place}: the question has no text")
    return record.id("id", "_id"), text, found


class Candidate(NamedTuple):
    """An article that was judged beside another."""

    id: str
    grade: int
    text: str


class Ranked(NamedTuple):
    """An article, and the grades of others beside it; ``articles`` has their texts, None where the source has none."""

    id: str
    text: str
    grades: Mapping[str, int]
    articles: Mapping[str, str] | None


def _relish(pool: Pool, sources: Sequence[Path], wanted: Wanted) -> Iterator[Document]:
    """Articles with those judged beside them: RELISH's own file, which has their ids alone, or SciRepEval's rows."""
    written = set[str]()
    for one in pool.made(read_sources(sources), partial(_ranked, pool)):
        for id_, text in (one.articles or {}).items():
            if text and id_ not in written:
                written.add(id_)
                yield Document(id_, text)
        grades = {id_: grade for id_, grade in one.grades.items() if one.articles is None or id_ in written}
        pool.queries[one.id], known = one.text or pool.queries.get(one.id, ""), pool.grades[one.id]
        pool.counts["candidates_without_text"] += len(one.grades) - len(grades)
        pool.counts["judged_twice"] += len(known.keys() & grades.keys())
        pool.grades[one.id] = known | {id_: max(grade, known.get(id_, 0)) for id_, grade in grades.items()}
    if not pool.queries:
        raise pool.nothing_left()
    if not written:
        yield from _judged(pool, wanted)


def _ranked(pool: Pool, record: Record) -> Ranked:
    if "response" in record.said:
        response = record.inside("response")
        words = [word for word in _GRADES if response.has(word)]
        return Ranked(record.id("pmid"), "", {id_: _GRADES[word] for word in words for id_ in response.ids(word)}, None)
    seed = record.inside("query")
    id_, text = seed.id("doc_id"), _article(seed)
    found = list(pool.made(record.each("candidates"), _candidate, "candidates", "candidates_"))
    return Ranked(id_, text, {one.id: one.grade for one in found}, {one.id: one.text for one in found})


def _candidate(record: Record) -> Candidate:
    return Candidate(record.id("doc_id"), record.whole_number("score"), _article(record))


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


def _article(said: Record) -> str:
    """Title and abstract, joined as documents are when they are measured."""
    return clean(f"{said.optional_text('title')} {said.optional_text('abstract')}")


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
        "ChatDoctor's iCliniq.json (input, answer_icliniq), MedDialog's dialogues (text, JSON or parquet; iCliniq's "
        "are taken), or rows of source, query and document",
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
