"""PubMed abstracts from a local copy: the yearly baseline, MedRAG's, BioASQ's, or any table with a PubMed id."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from suwen.corpora.files import CorpusError
from suwen.corpora.record_fields import find_field
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


def read_abstracts(source: Path, encoding: str = "utf-8") -> Iterator[Document]:
    """The articles of a file or a folder of files by their PubMed ids, streamed; one without an abstract has no text.

    XML is PubMed's own (``PubmedArticle``). Records of jsonl, json, csv, tsv and parquet files have an id under PMID,
    pmid, pubmed_id, _id, id or doc_id, and a text under abstract, abstractText, content or text.

    Raises:
        CorpusError: There is none, or a file cannot be read; BioASQ's ``allMeSH`` files want ``iso-8859-1``.
    """
    found = False
    for path in source_files(source):
        if is_xml(path):
            articles = (_article(node) for _, node in xml_elements(path, "PubmedArticle"))
        else:
            articles = (
                Document(
                    str(record[find_field(record, _ID, place)]),
                    clean(str(record[find_field(record, _TEXT, place)] or "")),
                    clean(str(record.get("title") or "")),
                )
                for place, record in records(path, encoding=encoding)
            )
        for document in articles:
            found = True
            yield document
    if not found:
        raise CorpusError(
            f"{source}: no PubMed abstracts here; give pubmedNNnNNNN.xml.gz files or jsonl with pmid, title, abstract"
        )


def _article(node: Element) -> Document:
    citation = "MedlineCitation/Article"
    parts = (_words(part) for part in node.iterfind(f"{citation}/Abstract/AbstractText"))
    return Document(
        node.findtext("MedlineCitation/PMID", ""),
        clean(" ".join(part for part in parts if part)),
        _words(node.find(f"{citation}/ArticleTitle")),
    )


def _words(node: Element | None) -> str:
    """All that stands in an element, whatever is italic or raised in it."""
    return "" if node is None else clean("".join(node.itertext()))
