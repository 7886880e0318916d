"""BMRetriever's evaluation sets from files in the formats of their sources, written by hand, and a run over them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from suwen.bench.evaluation_sets import BUILDERS, Wanted, build
from suwen.bench.shipped import BUILT
from suwen.bench.suite_runner import run_suite
from suwen.bench.suite_tasks import load_suite
from suwen.bench.task_data import DataError
from suwen.corpora.collection import Collection

URL, ARTICLES = "http://www.ncbi.nlm.nih.gov/pubmed/", "https://www.ncbi.nlm.nih.gov/pmc/articles/"
PUBMED = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE PubmedArticleSet SYSTEM "http://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_240101.dtd">
<PubmedArticleSet>{}</PubmedArticleSet>"""
ARTICLE = """<PubmedArticle><MedlineCitation Status="MEDLINE"><PMID Version="1">{0}</PMID><Article>
<ArticleTitle>Trial {0} of <i>Salix</i> bark.</ArticleTitle><Abstract>
<AbstractText Label="METHODS">Bark {0} was given to <sup>40</sup>people.</AbstractText>
<AbstractText Label="RESULTS">Pain {0} went.</AbstractText></Abstract></Article>
<CommentsCorrectionsList><CommentsCorrections><PMID>999</PMID></CommentsCorrections></CommentsCorrectionsList>
</MedlineCitation></PubmedArticle>"""
BARE = """<PubmedArticle><MedlineCitation><PMID>77</PMID><Article><ArticleTitle>A letter.</ArticleTitle></Article>
</MedlineCitation></PubmedArticle>"""
DRUGS = """<?xml version="1.0" encoding="UTF-8"?>
<drugbank xmlns="http://www.drugbank.ca" version="5.1">
<drug type="small molecule"><drugbank-id primary="true">DB00945</drugbank-id><drugbank-id>APRD00264</drugbank-id>
<name>Acetylsalicylic acid</name><description>A salicylate used against pain and clots.</description>
<groups><group>approved</group><group>investigational</group></groups>
<pathways><pathway><drugs><drug><drugbank-id>DB00001</drugbank-id><name>Lepirudin</name></drug></drugs></pathway></pathways>
</drug>
<drug><drugbank-id primary="true">DB00001</drugbank-id><name>Lepirudin</name><description/>
<groups><group>approved</group></groups></drug>
<drug><drugbank-id primary="true">DB99999</drugbank-id><name>Novelin</name><description>Not on any market.</description>
<groups><group>vet_approved</group></groups></drug>
</drugbank>"""
VOCABULARY = """DrugBank ID,Accession Numbers,Common name,CAS,UNII,Synonyms,Standard InChI Key
DB00945,APRD00264 | EXPT00475,Acetylsalicylic acid,50-78-2,R16CO5Y76E,Aspirin,BSYNRYMUTXBXSQ-UHFFFAOYSA-N
"""
MESH = """<?xml version="1.0"?><!DOCTYPE DescriptorRecordSet SYSTEM "desc2024.dtd">
<DescriptorRecordSet LanguageCode="eng">
<DescriptorRecord DescriptorClass="1"><DescriptorUI>D000001</DescriptorUI>
<DescriptorName><String>Calcimycin</String></DescriptorName>
<PharmacologicalActionList><PharmacologicalAction><DescriptorReferredTo><DescriptorUI>D000900</DescriptorUI>
<DescriptorName><String>Anti-Bacterial Agents</String></DescriptorName></DescriptorReferredTo></PharmacologicalAction>
</PharmacologicalActionList>
<ConceptList><Concept PreferredConceptYN="N"><ScopeNote>Another concept.</ScopeNote></Concept>
<Concept PreferredConceptYN="Y"><ScopeNote>An ionophore for bivalent ions.
</ScopeNote></Concept></ConceptList></DescriptorRecord>
<DescriptorRecord DescriptorClass="3"><DescriptorUI>D005260</DescriptorUI>
<DescriptorName><String>Female</String></DescriptorName><ConceptList><Concept PreferredConceptYN="Y"/></ConceptList>
</DescriptorRecord></DescriptorRecordSet>"""


def put(file: Path, value: Any) -> Path:
    """A file of the kind its name says."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(value), file)
    elif file.name.endswith(".jsonl"):
        file.write_text("".join(json.dumps(row) + "\n" for row in value), encoding="utf-8")
    else:
        text = value if isinstance(value, str) else json.dumps(value, indent=4)
        file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())
    return file


def made(name: str, sources: list[Path], to: Path, **wanted: Any) -> tuple[dict[str, Any], dict[str, int]]:
    """Documents, queries and judgements of what is built, and its counts."""
    counts = build(name, sources, to, Wanted(**wanted))
    collection = Collection.open(to)
    assert json.loads((to / "about" / "counts.json").read_text(encoding="utf-8")) == counts
    whole = {
        "documents": {document.id: document.text for document in collection.documents()},
        "queries": {query.id: query.text for query in collection.queries()},
        "qrels": collection.qrels("test"),
    }
    assert (counts["documents"], counts["queries"]) == (len(whole["documents"]), len(whole["queries"]))
    return whole, counts


def test_every_set_that_is_no_collection_has_a_builder() -> None:
    ready = {"NFCorpus", "SciFact", "SciDocs", "Trec-COVID", "BIOSSES"}
    tasks = {task.name: task for task in load_suite("bmretriever").tasks}
    assert tasks.keys() - ready == BUILDERS.keys() == set(BUILT)
    assert all(f"suwen bench build {name} " in tasks[name].get for name in BUILDERS)


# -- BioASQ ----------------------------------------------------------------------------------------------------------


def questions(folder: Path) -> Path:
    asked = [
        {"id": "q1", "type": "yesno", "body": "Does willow bark help?", "documents": [URL + "1", URL + "2"]},
        {"id": "q2", "type": "list", "body": "Which barks?", "documents": [URL + "77", URL + "404", ARTICLES + "PMC3"]},
        {"id": "q3", "type": "factoid", "body": "Which pain?", "documents": [URL + "3"]},
    ]
    put(folder / "8B1_golden.json", {"questions": asked[:2]})
    put(folder / "8B2_golden.json", {"questions": asked[2:]})
    return folder


def test_bioasq_keeps_what_is_judged_and_draws_the_rest(tmp_path: Path) -> None:
    source, abstracts = questions(tmp_path / "b"), tmp_path / "pubmed"
    put(abstracts / "pubmed24n0001.xml.gz", PUBMED.format("".join(map(ARTICLE.format, range(1, 9))) + BARE))
    put(abstracts / "pubmed24n0002.xml.gz", PUBMED.format("".join(map(ARTICLE.format, (1, *range(9, 31))))))
    whole, counts = made("BioASQ", [source], tmp_path / "out", abstracts=abstracts, documents=15)
    assert whole["qrels"] == {"q1": {"1": 1, "2": 1}, "q3": {"3": 1}}
    assert {"1", "2", "3"} < whole["documents"].keys() and 8 <= len(whole["documents"]) <= 13
    assert whole["documents"]["1"] == "Bark 1 was given to 40people. Pain 1 went."
    first = json.loads((tmp_path / "out" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert first["title"].endswith("of Salix bark.")
    assert counts["judged_articles_that_are_not_here"] == 2  # 77 has no abstract, 404 is not there
    assert counts["queries_without_a_relevant_document"] == 1
    again, _ = made("BioASQ", [source], tmp_path / "again", abstracts=abstracts, documents=15)
    other, _ = made("BioASQ", [source], tmp_path / "other", abstracts=abstracts, documents=15, seed=1)
    assert again == whole and other["documents"].keys() != whole["documents"].keys()
    few, counts = made("BioASQ", [source], tmp_path / "few", abstracts=abstracts, queries=1, seed=3)
    assert len(few["queries"]) == 1 and counts["queries_not_drawn"] == 2


@pytest.mark.parametrize(
    ("name", "rows", "encoding"),
    [
        (
            "medrag.jsonl",
            [{"id": "pubmed23n0001_0", "PMID": 1, "title": "T", "content": "Böhm", "contents": "x"}],
            "utf-8",
        ),
        (
            "allMeSH_2020.json",
            '{"articles":[\n{"pmid":"1","title":"T","abstractText":"B\xf6hm","year":"2019"}\n]}',
            "latin-1",
        ),
        ("a.parquet", [{"pmid": "1", "title": "T", "abstract": "Böhm"}], "utf-8"),
    ],
)
def test_abstracts_come_in_the_forms_people_have(tmp_path: Path, name: str, rows: Any, encoding: str) -> None:
    file = put(tmp_path / name, rows)
    if encoding != "utf-8":
        file.write_text(rows, encoding=encoding)
    source = put(tmp_path / "q.json", {"questions": [{"id": "q", "body": "Who?", "documents": [URL + "1"]}]})
    source.write_text(source.read_text(encoding="utf-8").replace("Who", "Böhm"), encoding="utf-8")
    whole, _ = made("BioASQ", [source], tmp_path / "out", abstracts=file, encoding=encoding)
    assert whole["documents"] == {"1": "Böhm"} and whole["queries"] == {"q": "Böhm?"}


# -- pairs -----------------------------------------------------------------------------------------------------------


def pubmedqa(start: int, count: int) -> dict[str, Any]:
    return {
        str(pmid): {
            "QUESTION": f"Does trial {pmid} help?",
            "CONTEXTS": [f"Trial {pmid} was done.", "It ended."],
            "LABELS": ["METHODS", "RESULTS"],
            "LONG_ANSWER": f"It does {pmid}.",
            "final_decision": "yes",
        }
        for pmid in range(start, start + count)
    }


def test_pubmedqa_asks_labelled_questions_over_all_abstracts(tmp_path: Path) -> None:
    files = [put(tmp_path / "ori_pqal.json", pubmedqa(100, 6)), put(tmp_path / "ori_pqaa.json", pubmedqa(200, 20))]
    test = put(tmp_path / "test_ground_truth.json", {"101": "yes", "104": "no"})
    whole, counts = made("PubMedQA", files, tmp_path / "out", test=test)
    assert whole["qrels"] == {"101": {"101": 1}, "104": {"104": 1}}
    assert whole["queries"]["104"] == "Does trial 104 help?" and len(whole["documents"]) == 26
    assert whole["documents"]["104"] == "Trial 104 was done. It ended."
    assert counts["questions_not_of_the_test"] == 4
    drawn, counts = made("PubMedQA", files, tmp_path / "drawn", queries=3)
    assert len(drawn["queries"]) == 3 and counts["queries_not_drawn"] == 3
    assert all(int(id_) < 200 for id_ in drawn["queries"])


def test_pubmedqa_as_the_hub_has_it(tmp_path: Path) -> None:
    def rows(start: int, count: int) -> list[dict[str, Any]]:
        return [
            {
                "pubid": int(pmid),
                "question": one["QUESTION"],
                "context": {"contexts": one["CONTEXTS"], "labels": one["LABELS"], "meshes": []},
                "long_answer": one["LONG_ANSWER"],
            }
            for pmid, one in pubmedqa(start, count).items()
        ]

    put(tmp_path / "hub" / "pqa_labeled" / "train-00000-of-00001.parquet", rows(1, 2))
    put(tmp_path / "hub" / "pqa_unlabeled" / "train-00000-of-00001.parquet", rows(5, 3))
    whole, _ = made("PubMedQA", [tmp_path / "hub"], tmp_path / "out")
    assert whole["queries"].keys() == {"1", "2"} and len(whole["documents"]) == 5
    with pytest.raises(DataError, match=r"no file of the labelled part.*ori_pqal.json"):
        build("PubMedQA", [tmp_path / "hub" / "pqa_unlabeled"], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_pubmedqa_loses_no_question_to_the_order_of_files_and_tells_of_those_that_are_not_there(tmp_path: Path) -> None:
    files = [put(tmp_path / "ori_pqaa.json", pubmedqa(100, 9)), put(tmp_path / "ori_pqal.json", pubmedqa(100, 6))]
    test = put(tmp_path / "test_ground_truth.json", {"101": "yes", "107": "no", "900": "no"})
    whole, counts = made("PubMedQA", files, tmp_path / "out", test=test)
    assert whole["qrels"] == {"101": {"101": 1}} and len(whole["documents"]) == 9
    assert counts["ids_repeated"] == 6 and counts["questions_of_the_test_that_are_not_here"] == 2


ASKED, ANSWERED = "My ear rings at night, why?", "Ringing may come from noise."
ICLINIQ = {
    "iCliniq.json": [{"input": ASKED, "answer_icliniq": ANSWERED, "answer_chatgpt": "x", "answer_chatdoctor": "y"}],
    "consult.jsonl": [
        {"source": "icliniq", "query": ASKED, "document": ANSWERED},
        {"source": "ehealthforum", "query": "Is it flu?", "document": "It may be."},
    ],
    "dialogues.json": [
        {
            "file_name": "icliniq_dialogue.txt",
            "dialogue_turns": [{"speaker": 0, "utterance": ASKED}, {"utterance": ANSWERED}],
        },
        {"file_name": "healthcaremagic_dialogue_1.txt", "dialogue_turns": [{"utterance": "a"}, {"utterance": "b"}]},
    ],
    "dialogues.parquet": [
        {
            "dialogue_url": "https://www.icliniq.com/qa/x",
            "dialogue_turns": {"speaker": [0, 1], "utterance": [ASKED, ANSWERED]},
        }
    ],
    "icliniq-processed.json": [{"description": "d", "utterances": [f"patient: {ASKED}", f"doctor: {ANSWERED}"]}],
}


@pytest.mark.parametrize("name", ICLINIQ)
def test_icliniq_in_every_form_it_was_given_out_in(tmp_path: Path, name: str) -> None:
    whole, counts = made("iCliniq", [put(tmp_path / name, ICLINIQ[name])], tmp_path / "out")
    assert list(whole["queries"].values()) == [ASKED] and list(whole["documents"].values()) == [ANSWERED]
    assert counts["of_another_site"] == len(ICLINIQ[name]) - 1


def test_icliniq_as_meddialog_gave_it_out(tmp_path: Path) -> None:
    turns = "id={0}\nhttps://www.example.org/{0}\nDescription\nQ. x\n\nDialogue\nPatient:\n{1}\n\nDoctor:\n{2}\n\n\n"
    put(tmp_path / "dialogues" / "icliniq_dialogue.txt", turns.format(1, ASKED, ANSWERED) + "id=2\nDescription\ny\n")
    put(tmp_path / "dialogues" / "healthcaremagic_dialogue_1.txt", turns.format(1, "a", "b"))
    put(tmp_path / "dialogues" / "readme.txt", "no dialogues")
    for number, source in enumerate((tmp_path / "dialogues", tmp_path / "dialogues" / "icliniq_dialogue.txt")):
        whole, counts = made("iCliniq", [source], tmp_path / f"out{number}")
        assert list(whole["queries"].values()) == [ASKED] and list(whole["documents"].values()) == [ANSWERED]
        assert (counts["of_another_site"], counts["without_text"]) == (1 - number, 1)


def test_texts_that_come_twice_are_one_and_empty_ones_are_left_out(tmp_path: Path) -> None:
    rows = [("a?", "one"), ("b?", "one"), ("a?", "two"), ("c?", " "), ("", "three")]
    source = put(tmp_path / "iCliniq.json", [{"input": query, "answer_icliniq": text} for query, text in rows])
    whole, counts = made("iCliniq", [source], tmp_path / "out")
    assert whole["documents"] == {"icliniq-0": "one", "icliniq-2": "two"}
    assert whole["qrels"] == {"icliniq-0": {"icliniq-0": 1, "icliniq-2": 1}, "icliniq-1": {"icliniq-0": 1}}
    assert (counts["documents_repeated"], counts["queries_repeated"], counts["without_text"]) == (1, 1, 2)


def test_drugbank_takes_a_name_and_its_description(tmp_path: Path) -> None:
    source = put(tmp_path / "full database.xml", DRUGS)
    whole, counts = made("DrugBank", [source], tmp_path / "out")
    assert whole["queries"] == {"DB00945": "Acetylsalicylic acid", "DB99999": "Novelin"}
    assert whole["documents"]["DB00945"] == "A salicylate used against pain and clots."
    assert (counts["records"], counts["without_text"]) == (3, 1)
    approved, counts = made("DrugBank", [source], tmp_path / "approved", group="approved")
    assert approved["queries"].keys() == {"DB00945"} and counts["of_another_group"] == 1
    table = put(tmp_path / "drugs.csv", 'drugbank_id,name,description\nDB1,Aspirin,"Against pain, and clots."\n')
    assert made("DrugBank", [table], tmp_path / "csv")[0]["documents"] == {"DB1": "Against pain, and clots."}


def test_mesh_takes_a_descriptor_and_the_note_of_its_preferred_concept(tmp_path: Path) -> None:
    whole, counts = made("MeSH", [put(tmp_path / "desc2024.gz", MESH)], tmp_path / "out")
    assert whole["queries"] == {"D000001": "Calcimycin"}
    assert whole["documents"] == {"D000001": "An ionophore for bivalent ions."}
    assert counts["without_text"] == 1


# -- RELISH ----------------------------------------------------------------------------------------------------------


def test_relish_as_its_authors_gave_it_out(tmp_path: Path) -> None:
    said = [
        {"uid": "a", "pmid": "1", "response": {"relevant": ["2"], "partial": ["3"], "irrelevant": ["4", "404"]}},
        {"uid": "b", "pmid": "1", "response": {"relevant": ["3"], "partial": [], "irrelevant": ["2"]}},
        {"uid": "c", "pmid": "404", "response": {"relevant": ["5"], "partial": [], "irrelevant": []}},
        {"uid": "d", "pmid": "6", "response": {"relevant": [], "partial": [], "irrelevant": ["5"]}},
    ]
    source = put(tmp_path / "RELISH_v1.json", said)
    abstracts = put(tmp_path / "p.xml", PUBMED.format("".join(map(ARTICLE.format, range(1, 9)))))
    whole, counts = made("RELISH", [source], tmp_path / "out", abstracts=abstracts)
    assert whole["qrels"] == {"1": {"2": 2, "3": 2, "4": 0}} and whole["documents"].keys() == {"2", "3", "4", "5"}
    assert whole["queries"]["1"].startswith("Trial 1 of Salix bark. Bark 1 was given")
    assert (counts["judged_twice"], counts["judged_articles_that_are_not_here"]) == (2, 1)
    assert (counts["queries_without_text"], counts["queries_without_a_relevant_document"]) == (1, 1)


def test_relish_as_scirepeval_has_it(tmp_path: Path) -> None:
    def article(number: int, **more: int) -> dict[str, Any]:
        return {"doc_id": str(number), "title": f"Paper {number}", "abstract": f"Says {number}.", **more}

    rows = [
        {"query": article(1), "candidates": [article(2, score=2), article(3, score=0)]},
        {"query": article(4), "candidates": [article(2, score=0), {**article(5, score=1), "abstract": None}]},
    ]
    source = put(tmp_path / "relish" / "evaluation-00000-of-00001.parquet", rows)
    whole, _ = made("RELISH", [source], tmp_path / "out")
    assert whole["qrels"] == {"1": {"2": 2, "3": 0}, "4": {"2": 0, "5": 1}}
    assert whole["documents"] == {"2": "Paper 2 Says 2.", "3": "Paper 3 Says 3.", "5": "Paper 5"}


# -- records that cannot be used -------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
GOOD = {"doc_id": "1", "title": "Bark", "abstract": "It helps."}
CANDIDATE = GOOD | {"doc_id": "2", "score": 1}


RECORDS = {
    "PubMedQA": {"id": 7, "QUESTION": ASKED, "CONTEXTS": [ANSWERED]},
    "iCliniq": {"input": ASKED, "answer_icliniq": ANSWERED},
    "DrugBank": {"id": "DB7", "name": ASKED, "description": ANSWERED},
    "RELISH": {"query": {"doc_id": 7, "title": ASKED}, "candidates": [{"doc_id": 8, "title": ANSWERED, "score": 2}]},
    "BioASQ": {"id": "q7", "body": ASKED, "documents": [URL + "8"]},
}
FORMS = [
    *RECORDS.items(),
    ("PubMedQA", {"id": 7, "question": ASKED, "context": {"contexts": [ANSWERED]}}),
    ("iCliniq", {"answer_icliniq": None, "utterances": [ASKED, ANSWERED]}),
    ("iCliniq", {"answer_icliniq": None, "dialogue_turns": {"utterance": [ASKED, ANSWERED]}}),
    ("iCliniq", {"answer_icliniq": None, "dialogue_turns": [{"utterance": ASKED}, {"utterance": ANSWERED}]}),
    ("RELISH", {"pmid": 7, "response": {"relevant": [8], "irrelevant": ["9"]}}),
]


@pytest.mark.parametrize(
    ("name", "record", "why"),
    [
        ("PubMedQA", {"id": 1, "QUESTION": "a?", "CONTEXTS": None}, "without_text"),
        ("PubMedQA", {"id": 1, "QUESTION": "a?", "CONTEXTS": ["a", None]}, "with_a_field_of_another_kind"),
        ("PubMedQA", {"id": 1, "QUESTION": "a?", "context": {"contexts": 5}}, "with_a_field_of_another_kind"),
        ("PubMedQA", {"id": 1, "QUESTION": "a?", "context": {}}, "without_a_field"),
        ("PubMedQA", {"id": 1, "QUESTION": ["a?"], "CONTEXTS": ["a"]}, "with_a_field_of_another_kind"),
        ("PubMedQA", {"id": None, "QUESTION": "a?", "CONTEXTS": ["a"]}, "without_an_id"),
        ("PubMedQA", {"id": {"a": 1}, "QUESTION": "a?", "CONTEXTS": ["a"]}, "with_a_field_of_another_kind"),
        ("PubMedQA", {"id": "1\n2", "QUESTION": "a?", "CONTEXTS": ["a"]}, "with_a_field_of_another_kind"),
        ("iCliniq", {"utterances": [1, 2]}, "with_a_field_of_another_kind"),
        ("iCliniq", {"utterances": "My ear rings"}, "with_a_field_of_another_kind"),
        ("iCliniq", {"utterances": [{"utterance": "a"}, "b"]}, "with_a_field_of_another_kind"),
        ("iCliniq", {"utterances": [{"said": "a"}, {"said": "b"}]}, "without_a_field"),
        ("iCliniq", {"utterances": {"utterance": "ab"}}, "with_a_field_of_another_kind"),
        ("iCliniq", {"utterances": []}, "without_text"),
        ("iCliniq", {"utterances": ["Patient: a?"]}, "without_text"),
        ("iCliniq", {"utterances": ["Doctor: Hello.", "Patient: a?"]}, "not_a_question_and_its_answer"),
        ("iCliniq", {"utterances": ["Patient: a?", "Patient: b?"]}, "not_a_question_and_its_answer"),
        ("iCliniq", {"input": 5, "answer_icliniq": "b"}, "with_a_field_of_another_kind"),
        ("iCliniq", {"input": "a", "answer_chatgpt": "b"}, "without_a_field"),
        ("DrugBank", {"id": None, "name": "a", "description": "b"}, "without_an_id"),
        ("DrugBank", {"id": "DB1", "name": "a", "description": None}, "without_text"),
        ("DrugBank", {"id": "DB1", "name": "a"}, "without_a_field"),
        ("DrugBank", {"id": "DB1", "name": ["a"], "description": "b"}, "with_a_field_of_another_kind"),
        ("RELISH", {"pmid": "1", "response": "none"}, "with_a_field_of_another_kind"),
        ("RELISH", {"pmid": "1", "response": {"relevant": "12"}}, "with_a_field_of_another_kind"),
        ("RELISH", {"pmid": None, "response": {"relevant": ["2"]}}, "without_an_id"),
        ("RELISH", {"pmid": "1", "response": {"relevant": [None]}}, "without_an_id"),
        ("RELISH", {"query": GOOD, "candidates": None}, "with_a_field_of_another_kind"),
        ("RELISH", {"query": GOOD, "candidates": [CANDIDATE, "b"]}, "with_a_field_of_another_kind"),
        ("RELISH", {"query": GOOD | {"title": ["a"]}, "candidates": []}, "with_a_field_of_another_kind"),
        ("RELISH", {"query": GOOD, "candidates": [GOOD]}, "candidates_without_a_field"),
        ("RELISH", {"query": GOOD, "candidates": [GOOD | {"score": None}]}, "candidates_with_a_field_of_another_kind"),
        ("RELISH", {"query": GOOD, "candidates": [GOOD | {"score": 1.5}]}, "candidates_with_a_field_of_another_kind"),
        ("RELISH", {"query": GOOD, "candidates": [GOOD | {"score": True}]}, "candidates_with_a_field_of_another_kind"),
        ("RELISH", {"query": GOOD, "candidates": [CANDIDATE | {"doc_id": None}]}, "candidates_without_an_id"),
        ("BioASQ", {"id": "q", "body": "a?"}, "without_a_field"),
        ("BioASQ", {"id": "q", "body": "a?", "documents": None}, "with_a_field_of_another_kind"),
        ("BioASQ", {"id": "q", "body": "a?", "documents": [1]}, "with_a_field_of_another_kind"),
        ("BioASQ", {"id": "q", "body": None, "documents": [URL + "1"]}, "without_text"),
        ("BioASQ", {"body": "a?", "documents": [URL + "1"]}, "without_a_field"),
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_used_is_left_out_and_counted(
    tmp_path: Path, name: str, record: dict[str, Any], why: str
) -> None:
    abstracts = put(tmp_path / "abstracts.jsonl", [{"pmid": 8, "abstract": ANSWERED}])
    alone, both = put(tmp_path / "icliniq.jsonl", [record]), put(tmp_path / "icliniq.json", [RECORDS[name], record])
    whole, counts = made(name, [both], tmp_path / "out", abstracts=abstracts)
    assert list(whole["queries"].values()) == [ASKED] and list(whole["documents"].values()) == [ANSWERED]
    assert counts[why] == 1 and counts["records"] == 2
    with pytest.raises(DataError, match=rf"(?s)no query is left.*\b1 {why.replace('_', ' ')}\b.*It is built from"):
        build(name, [alone], tmp_path / "none", Wanted(abstracts=abstracts))


@st.composite
def spoilt(draw: st.DrawFn) -> tuple[str, Any]:
    """A record of a set in which anything at all stands in one place."""
    name, record = draw(st.sampled_from(FORMS))
    whole: Any = json.loads(json.dumps(record))
    here = whole
    while True:
        key = draw(st.sampled_from(sorted(here) if isinstance(here, dict) else range(len(here))))
        if not isinstance(here[key], dict | list) or not here[key] or draw(st.booleans()):
            here[key] = draw(JSON)
            return name, whole
        here = here[key]


@settings(deadline=None)
@given(spoilt())
def test_whatever_a_record_holds_the_build_ends_in_words(case: tuple[str, Any]) -> None:
    name, record = case
    with TemporaryDirectory() as folder:
        abstracts = put(Path(folder) / "a.jsonl", [{"pmid": 7, "abstract": ASKED}, {"pmid": 8, "abstract": ANSWERED}])
        source = put(Path(folder) / "icliniq.jsonl", [RECORDS[name], record])
        counts = build(name, [source], Path(folder) / "out", Wanted(abstracts=abstracts))
        assert counts["queries"] >= 1 and counts["records"] == 2


def test_the_first_record_left_out_is_named_with_its_field(tmp_path: Path) -> None:
    source = put(tmp_path / "iCliniq.jsonl", [{"input": 5, "answer_icliniq": "b"}])
    with pytest.raises(DataError, match=r"iCliniq\.jsonl:1: the field 'input' holds 5, not a text"):
        build("iCliniq", [source], tmp_path / "out")


def test_xml_with_missing_parts_is_left_out_and_counted(tmp_path: Path) -> None:
    nameless = "<drug><name>Bare</name><description>It has no id.</description></drug>"
    drugs = put(tmp_path / "d.xml", DRUGS.replace("</drugbank>", nameless * 2 + "<drug/></drugbank>"))
    whole, counts = made("DrugBank", [drugs], tmp_path / "drugs")
    assert whole["documents"].keys() == {"DB00945", "DB99999"} and counts["without_an_id"] == 3
    bare = "<DescriptorRecord><DescriptorUI/></DescriptorRecord><DescriptorRecord/>"
    mesh = put(tmp_path / "m.xml", MESH.replace("</DescriptorRecordSet>", bare + "</DescriptorRecordSet>"))
    whole, counts = made("MeSH", [mesh], tmp_path / "mesh")
    assert whole["documents"].keys() == {"D000001"} and counts["without_an_id"] == 2


def test_abstracts_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    rows = [{"pmid": 1, "abstract": "a"}, {"pmid": None, "abstract": "b"}, {"pmid": 2}, {"pmid": 3, "abstract": {}}]
    abstracts = put(tmp_path / "a.jsonl", rows)
    source = put(tmp_path / "q.json", {"questions": [{"id": "q", "body": "Who?", "documents": [URL + "1"]}]})
    whole, counts = made("BioASQ", [source], tmp_path / "out", abstracts=abstracts)
    assert whole["documents"] == {"1": "a"} and counts["articles_without_an_id_or_a_text"] == 2 * 3  # read twice
    with pytest.raises(DataError, match=r"no PubMed abstracts here \(.*b\.jsonl:1: the field 'pmid' is empty"):
        build("BioASQ", [source], tmp_path / "no", Wanted(abstracts=put(tmp_path / "b.jsonl", rows[1:])))


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "t.json: not valid JSON"), ("5", "t.json: no ids"), ("[]", "t.json: no ids"), ("[[]]", "not an id")],
)
def test_a_file_of_test_questions_that_has_none_is_refused(tmp_path: Path, text: str, message: str) -> None:
    source, test = put(tmp_path / "ori_pqal.json", pubmedqa(100, 6)), put(tmp_path / "t.json", text)
    with pytest.raises(DataError, match=message):
        build("PubMedQA", [source], tmp_path / "out", Wanted(test=test))
    ids = put(tmp_path / "ids.json", [101, "104"])
    assert made("PubMedQA", [source], tmp_path / "out", test=ids)[0]["queries"].keys() == {"101", "104"}


# -- all of them -----------------------------------------------------------------------------------------------------


def test_what_was_built_is_what_the_suite_runs(tmp_path: Path) -> None:
    """Every set under the folder that the suite looks in, then a benchmark over them."""
    bark = put(tmp_path / "p.xml.gz", PUBMED.format("".join(map(ARTICLE.format, range(1, 9)))))
    said = [{"pmid": "1", "response": {"relevant": ["2"], "partial": ["3"], "irrelevant": ["4"]}}]
    sources = {
        "BioASQ": questions(tmp_path / "b"),
        "PubMedQA": put(tmp_path / "ori_pqal.json", pubmedqa(100, 6)),
        "iCliniq": put(tmp_path / "iCliniq.json", ICLINIQ["iCliniq.json"]),
        "DrugBank": put(tmp_path / "full database.xml", DRUGS),
        "MeSH": put(tmp_path / "desc2024.xml", MESH),
        "RELISH": put(tmp_path / "RELISH_v1.json", said),
    }
    for name, source in sources.items():
        build(name, [source], tmp_path / "data" / "bmretriever" / name, Wanted(abstracts=bark))
    done = run_suite(
        "bmretriever", ["bm25:words"], out=tmp_path / "results", data=tmp_path / "data", tasks=list(sources)
    )
    assert done.systems[0].results.keys() == sources.keys()
    assert done.systems[0].results["PubMedQA"].metrics["recall@5"] == 1.0


@pytest.mark.parametrize(
    ("name", "file", "text", "message"),
    [
        ("BioASQ", "q.json", {"questions": [{"id": "1", "body": "a?"}]}, "called documents; .*trainingNb.json"),
        ("BioASQ", "q.json", {"questions": [{"id": "1", "body": "a?", "documents": []}]}, "give their abstracts"),
        ("BioASQ", "q.xml", "<a/>", "an XML file where JSON belongs"),
        ("PubMedQA", "p.json", {"1": {"QUESTION": "a?"}}, "no field called CONTEXTS, context or document"),
        ("iCliniq", "HealthCareMagic.json", [{"input": "a", "output": "b"}], "no query is left.*\\b1 of another site"),
        ("DrugBank", "v.csv", VOCABULARY, "no field called description.*no descriptions"),
        ("DrugBank", "f.xml", DRUGS[:400], "not whole XML.*get it again"),
        ("DrugBank", "f.xml", b"PK\x03\x04 and more", "a zip archive.*unpack it"),
        ("MeSH", "supp2024.xml", "<SupplementalRecordSet/>", "no record is in what was given.*descYEAR.xml"),
        ("MeSH", "d2024.bin", "*NEWRECORD\nMH = Calcimycin\n", "not the ASCII file"),
        ("RELISH", "r.json", [{"pmid": "1"}], "no field called query"),
        ("RELISH", "r.json", [{"query": "a", "candidates": []}], "the field 'query' holds 'a', not an object"),
        ("RELISH", "r.json", [{"pmid": "1", "response": {"relevant": ["2"]}}], "--abstracts"),
        ("iCliniq", "icliniq_dialogue.txt", "Patient: a?\n", "no dialogues as MedDialog writes them"),
        ("DrugBank", "d.txt", "Aspirin", "a text has no records.*full database.xml"),
        ("PubMedQA", "p.txt", "a?", "a text has no records.*ori_pqal"),
        ("MeSH", "d.txt", "Female", "not whole XML"),
        ("BioASQ", "q.json", "", "the file is empty"),
        ("RELISH", "r.json", [], "no record is in what was given"),
        ("DrugBank", "d.csv", "id,name,description\n", "no record is in what was given"),
        ("Nonesuch", "r.json", [], "choose BioASQ, PubMedQA"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_what_is_needed(
    tmp_path: Path, name: str, file: str, text: Any, message: str
) -> None:
    source = tmp_path / file
    if isinstance(text, bytes):
        source.write_bytes(text)
    else:
        put(source, text)
    with pytest.raises(DataError, match=f"(?s){message}"):
        build(name, [source], tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == [file]


def test_progress_is_told_while_abstracts_are_read(tmp_path: Path) -> None:
    rows = [{"pmid": str(number), "title": "T", "abstract": f"Says {number}."} for number in range(1500)]
    abstracts, told = put(tmp_path / "a.jsonl", rows), list[int]()
    source = put(tmp_path / "q.json", {"questions": [{"id": "q", "body": "Who?", "documents": [URL + "1"]}]})
    counts = build("BioASQ", [source], tmp_path / "out", Wanted(abstracts=abstracts), lambda done, _: told.append(done))
    assert told == [1000, 2000, 3000] and counts["articles_read"] == 2 * counts["documents"] == 3000


def test_a_collection_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    source = put(tmp_path / "desc2024.xml", MESH)
    build("MeSH", [source], tmp_path / "out")
    with pytest.raises(DataError, match="already there"):
        build("MeSH", [source], tmp_path / "out")
