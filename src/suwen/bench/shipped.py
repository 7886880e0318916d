"""What ``suwen bench`` knows by name: forms of systems, suites, sets that can be built. Loads nothing, for the help."""

from __future__ import annotations

from pathlib import Path

#: Where the suites are that come with suwen.
FOLDER = Path(__file__).parent / "suites"
#: The evaluation sets that :mod:`suwen.bench.evaluation_sets` builds.
BUILT = ("BioASQ", "PubMedQA", "iCliniq", "DrugBank", "MeSH", "RELISH")
#: How a system is named, and what it is.
FORMS = {
    "pair:PATH[#TIER]": "a suwen pair; #all is every tier, #document its document encoder on both sides, "
    "#document-alone that encoder by itself where documents come half-way to a tier",
    "st:PATH": "a sentence-transformers model, a folder or a hub id",
    "st:QUERY+DOCUMENT": "two models of one space",
    "bm25:words": "BM25 over dictionary words; bm25:bigrams over character pairs; bm25:lucene with Lucene's analysers",
    "hybrid[:words|bigrams|lucene]:SYSTEM": "an encoder and BM25, fused by score",
    "hyde:MODEL[,n=4,weight=2]:SYSTEM": "an encoder whose queries come with documents that a language model writes",
    "questions:FILES:SYSTEM": "an encoder whose documents are found by their questions too: a file or a folder",
    "openai:URL#MODEL": "an embedding endpoint that speaks OpenAI's protocol; the key is OPENAI_API_KEY",
    "rerank:RERANKER[,hits=20]:SYSTEM": "a system whose first hits a reranker reads again; all of a query's candidates",
    "run:PATH": "a TREC run file, or a folder of them named after the tasks",
}


def suites() -> list[str]:
    """The names of the shipped suites."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))
