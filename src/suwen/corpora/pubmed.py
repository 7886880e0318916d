"""PubMed abstracts from a local copy: the yearly baseline, MedRAG's, BioASQ's, or any table with a PubMed id."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from suwen.corpora.files import BadRecord, CorpusError
from suwen.corpora.record_fields import find_field, identifier_of, text_of
from suwen.corpora.records import Document
from suwen.corpora.tabular import format_of, records
from suwen.corpora.xml_files import xml_elements
from suwen.text.clean import clean

_ID = ("PMID", "pmid", "pubmed_id", "_id", "id", "doc_id")
_TEXT = ("abstract", "abstractText", "content", "text")


def source_files(source: Path) -> list[Path]:
    """A file, or the tables and XML files of a folder, in the order of their names."""
    if not source.is_dir():
        return [source]
    return sorted(path for path in source.rglob("*") if is_xml(path) or format_of(path) not in (None, "text"))


def is_xml(path: Path) -> bool:
    """Whether a file's name says XML, gzipped or not."""
    return path.name.lower().endswith((".xml", ".xml.gz"))


def read_abstracts(
    source: Path, encoding: str = "utf-8", on_bad: Callable[[BadRecord], None] | None = None
) -> Iterator[Document]:
    """The articles of a file or a folder of files by their PubMed ids, streamed; one without an abstract has no text.

    XML is PubMed's own (``PubmedArticle``). Records of jsonl, json, csv, tsv and parquet files have an id under PMID,
    pmid, pubmed_id, _id, id or doc_id, and a text under abstract, abstractText, content or text.

    Args:
        source: The file or folder.
        encoding: Of text files; BioASQ's ``allMeSH`` files want ``iso-8859-1``.
        on_bad: Called with every record that is no article: it has no id, or no field of its text.

    Raises:
        CorpusError: There is none, or a file cannot be read.
    """
    found, problem = False, None
    for article in _articles(source, encoding):
        if isinstance(article, BadRecord):
            problem = problem or article
            if on_bad is not None:
                on_bad(article)
            continue
        found = True
        yield article
    if not found:
        raise CorpusError(
            f"{source}: no PubMed abstracts here{f' ({problem})' if problem else ''}; give pubmedNNnNNNN.xml.gz files "
            "or jsonl with pmid, title, abstract"
        )


def _articles(source: Path, encoding: str) -> Iterator[Document | BadRecord]:
    for path in source_files(source):
        if is_xml(path):
            yield from (_article(node, place) for place, node in xml_elements(path, "PubmedArticle"))
        else:
            yield from (_row(record, place) for place, record in records(path, encoding=encoding))


def _row(record: Mapping[str, Any], place: str) -> Document | BadRecord:
    try:
        id_, text = (find_field(record, names, place) for names in (_ID, _TEXT))
        found = identifier_of(record[id_], place, id_)
        if not found:
            return BadRecord(f"{place}: the field {id_!r} is empty, and an article needs its id")
        return Document(found, text_of(record[text], place, text), text_of(record.get("title"), place, "title"))
    except BadRecord as problem:
        return problem


def _article(node: Element, place: str) -> Document | BadRecord:
    citation, id_ = "MedlineCitation/Article", clean(node.findtext("MedlineCitation/PMID") or "")
    if not id_:
        return BadRecord(f"{place}: the article has no PMID")
    parts = (_words(part) for part in node.iterfind(f"{citation}/Abstract/AbstractText"))
    return Document(
        id_,
        clean(" ".join(part for part in parts if part)),
        _words(node.find(f"{citation}/ArticleTitle")),
    )


def _words(node: Element | None) -> str:
    """All that stands in an element, whatever is italic or raised in it."""
    return "" if node is None else clean("".join(node.itertext()))
