"""Public sets to rows: a real file of every format, written here by hand, and what is wrong with files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from suwen.bench.published_tables import instructions
from suwen.corpora.collection import write_collection
from suwen.corpora.files import CorpusError
from suwen.corpora.records import Document, Qrel, Query
from suwen.corpora.training_rows import TrainingRow, read_training_rows
from suwen.curate import CurateError
from suwen.curate.convert import convert, read_sets
from suwen.curate.leakage import HeldOut

PRINTED = instructions("bmretriever")
XML = """<?xml version="1.0" encoding="UTF-8"?>
<Document id="7" source="X" url="https://example.org"><Focus>Gout</Focus><QAPairs>
<QAPair pid="1"><Question qid="7-1" qtype="information">What is gout ?</Question><Answer>A painful
 arthritis.</Answer></QAPair>
<QAPair pid="2"><Question qid="7-2" qtype="causes">What causes gout ?</Question><Answer></Answer></QAPair>
</QAPairs></Document>
"""


def lines(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def converted(tmp_path: Path, name: str, file: str, text: str, **more: Any) -> tuple[list[TrainingRow], Any]:
    source = tmp_path / "source" / file
    source.parent.mkdir(exist_ok=True)
    source.write_bytes(gzip.compress(text.encode()) if file.endswith(".gz") else text.encode())
    return run(tmp_path, name, source, **more)


def run(tmp_path: Path, name: str, source: Path, **more: Any) -> tuple[list[TrainingRow], Any]:
    counts = convert(name, source, tmp_path / "rows.jsonl", PRINTED, **more)
    return list(read_training_rows(tmp_path / "rows.jsonl")), counts


#: By set: a file of it, and the query, the positives and the negatives of its first row.
FILES = {
    "medquad": ("7.xml", XML, ("What is gout ?", ["A painful\n arthritis."], [])),
    "mqp": (
        "mqp.csv",
        '1,"Is ""aspirin"" safe, doctor?",May I take aspirin?,1\n1,"Is ""aspirin"" safe, doctor?",What is a heart?,0\n',
        ('Is "aspirin" safe, doctor?', ["May I take aspirin?"], ["What is a heart?"]),
    ),
    "mednli": (
        "mli_train_v1.jsonl",
        lines(
            {"sentence1": "Has fever.", "sentence2": "Has no fever.", "gold_label": "contradiction"},
            {"sentence1": "Has fever.", "sentence2": "Is from Ohio.", "gold_label": "neutral"},
            {"sentence1": "Has fever.", "sentence2": "Is febrile.", "gold_label": "entailment"},
        ),
        ("Has fever.", ["Is febrile."], ["Has no fever."]),
    ),
    "healthcaremagic": (
        "HealthCareMagic-100k.json",
        json.dumps([{"instruction": "If you are a doctor, answer.", "input": "My knee hurts.", "output": "Rest it."}]),
        ("My knee hurts.", ["Rest it."], []),
    ),
    "stackexchange": (
        "biology.stackexchange.com.jsonl.gz",
        lines({"texts": ["Why do cells die? I wonder.", "Apoptosis."], "tags": ["cell"]}),
        ("Why do cells die? I wonder.", ["Apoptosis."], []),
    ),
    "msmarco": (
        "triples.train.small.tsv",
        'what is "gout\tAn arthritis.\tA "goat is an animal.\n',
        ('what is "gout', ["An arthritis."], ['A "goat is an animal.']),
    ),
    "nq": (
        "biencoder-nq-adv-hn-train.json.gz",
        json.dumps(
            [
                {
                    "question": "who found insulin",
                    "answers": ["Banting"],
                    "positive_ctxs": [{"title": "Insulin", "text": "Banting found it."}],
                    "negative_ctxs": [{"title": "Far", "text": "Far away."}],
                    "hard_negative_ctxs": [{"title": "Banting", "text": "A village."}],
                }
            ]
        ),
        ("who found insulin", ["Insulin\nBanting found it."], ["Banting\nA village."]),
    ),
    "eli5": (
        "eli5.jsonl",
        lines(
            {
                "title": "Why sleep?",
                "selftext": "",
                "answers": {"a_id": ["1", "2"], "text": ["No idea.", "To recover."], "score": [2, 9]},
            }
        ),
        ("Why sleep?", ["To recover."], []),
    ),
    "gooaq": ("gooaq_pairs.jsonl", lines(["is 5 a prime", "Yes, it is."]), ("is 5 a prime", ["Yes, it is."], [])),
    "nli": (
        "nli_for_simcse.csv",
        "sent0,sent1,hard_neg\nA man eats.,A man is eating.,A man sleeps.\n",
        ("A man eats.", ["A man is eating."], ["A man sleeps."]),
    ),
}
OTHER_FORMS = {
    ("mqp", "with-header.csv"): (
        "dr_id,question_1,question_2,label\n1,How?,In what way?,1\n",
        ("How?", ["In what way?"], []),
    ),
    ("healthcaremagic", "dialogues.json"): (
        json.dumps([{"utterances": ["patient: My ear rings.", "Doctor: See a specialist: soon.", "patient: Thanks."]}]),
        ("My ear rings.", ["See a specialist: soon."], []),
    ),
    ("msmarco", "marco.jsonl"): (
        lines({"query": "gout", "passages": {"is_selected": [0, 1], "passage_text": ["A goat.", "An arthritis."]}}),
        ("gout", ["An arthritis."], ["A goat."]),
    ),
    ("nli", "snli_1.0_train.jsonl"): (
        lines(
            {"sentence1": "A man eats.", "sentence2": "Nobody eats.", "gold_label": "contradiction"},
            {"sentence1": "A man eats.", "sentence2": "A human eats.", "gold_label": "entailment"},
            {"sentence1": "A man eats.", "sentence2": "He is tall.", "gold_label": "-"},
        ),
        ("A man eats.", ["A human eats."], ["Nobody eats."]),
    ),
    ("healthcaremagic", "turns.json"): (
        json.dumps(
            [
                {
                    "description": "Ear",
                    "dialogue_turns": [
                        {"speaker": "Patient", "utterance": "My ear rings."},
                        {"speaker": "Doctor", "utterance": "See a specialist."},
                    ],
                }
            ]
        ),
        ("My ear rings.", ["See a specialist."], []),
    ),
    ("stackexchange", "titlebody_upvoted_downvoted_answer.jsonl"): (
        lines({"texts": ["Why do cells die?", "Apoptosis.", "They do not."], "tags": ["cell"]}),
        ("Why do cells die?", ["Apoptosis."], ["They do not."]),
    ),
    ("stackexchange", "small_stackexchanges.jsonl"): (
        lines({"text": ["Why do cells die?", "Apoptosis."], "tags": []}),
        ("Why do cells die?", ["Apoptosis."], []),
    ),
    ("msmarco", "train_v1.1.jsonl"): (
        lines(
            {
                "query": "gout",
                "answers": ["x"],
                "passages": [
                    {"is_selected": 0, "url": "u", "passage_text": "A goat."},
                    {"is_selected": 1, "url": "u", "passage_text": "An arthritis."},
                ],
            }
        ),
        ("gout", ["An arthritis."], ["A goat."]),
    ),
    ("msmarco", "tevatron.jsonl"): (
        lines(
            {
                "query_id": "1",
                "query": "gout",
                "positive_passages": [{"docid": "3", "title": "-", "text": "An arthritis."}],
                "negative_passages": [{"docid": "4", "title": "", "text": "A goat."}],
            }
        ),
        ("gout", ["An arthritis."], ["A goat."]),
    ),
    ("nq", "NQ-train_pairs.jsonl"): (lines(["who found it", "Banting did."]), ("who found it", ["Banting did."], [])),
    ("fever", "triplets.jsonl"): (lines(["It is so.", "Yes.", "No."]), ("It is so.", ["Yes."], ["No."])),
    ("nli", "triplet.jsonl"): (
        lines({"anchor": "A man eats.", "positive": "A human eats.", "negative": "Nobody eats."}),
        ("A man eats.", ["A human eats."], ["Nobody eats."]),
    ),
    ("nli", "as-the-hub-writes-it.csv"): (
        "premise,hypothesis,label\nA man eats.,Nobody eats.,2\nA man eats.,A human eats.,0\nA man eats.,Tall.,1\n",
        ("A man eats.", ["A human eats."], ["Nobody eats."]),
    ),
    ("nli", "AllNLI.tsv.gz"): (
        "split\tdataset\tfilename\tsentence1\tsentence2\tlabel\n"
        'train\tSNLI\ta.txt\t"Eat," he said.\tA man "speaks.\tentailment\ntrain\tSNLI\ta.txt\t"Open\tShut\tneutral\n',
        ('"Eat," he said.', ['A man "speaks.'], []),
    ),
    ("mqp", "of-a-data-frame.csv"): (
        "dr_id,question_1,question_2,label\n1,How?,In what way?,1.0\n1,How?,Why?,0.0\n",
        ("How?", ["In what way?"], ["Why?"]),
    ),
}


@pytest.mark.parametrize(
    ("name", "file", "text", "first"),
    [
        *((name, file, text, first) for name, (file, text, first) in FILES.items()),
        *((name, file, text, first) for (name, file), (text, first) in OTHER_FORMS.items()),
    ],
    ids=[*FILES, *(" ".join(key) for key in OTHER_FORMS)],
)
def test_each_public_format_becomes_a_row(tmp_path: Path, name: str, file: str, text: str, first: Any) -> None:
    rows, counts = converted(tmp_path, name, file, text)
    assert (rows[0].query, list(rows[0].pos), list(rows[0].neg)) == first
    assert rows[0].prompt == PRINTED[read_sets()[name].published]
    assert counts["rows"] == len(rows) == 1


def test_every_set_of_the_papers_table_is_known_with_its_instruction_word_for_word() -> None:
    sets = read_sets()
    ninth = {"StackExchange", "MedNLI", "MQP", "MedQuad", "HealthcareMagic", "ELI5", "GooAQ", "MS Marco", "NQ"}
    assert ninth | {"FEVER", "NLI"} <= {one.published for one in sets.values()} <= set(PRINTED)
    assert PRINTED["HealthcareMagic"] == (
        "Given a question with context from online medical forums, retrieve responses that best answer the question"
    )


def test_a_folder_of_files_and_a_parquet_file(tmp_path: Path) -> None:
    for number in (1, 2):
        folder = tmp_path / "medquad" / f"{number}_QA"
        folder.mkdir(parents=True)
        (folder / "7.xml").write_text(XML.replace("gout", f"gout {number}"), encoding="utf-8")
    (tmp_path / "medquad" / "readme.txt").write_text("not a record", encoding="utf-8")
    rows, counts = run(tmp_path, "medquad", tmp_path / "medquad")
    assert [row.query for row in rows] == ["What is gout 1 ?", "What is gout 2 ?"]
    assert counts["records"] == 4 and counts["without_text"] == 2
    parquet.write_table(pyarrow.Table.from_pylist([{"question": "Q?", "answer": "A."}]), tmp_path / "medquad.parquet")
    assert run(tmp_path, "medquad", tmp_path / "medquad.parquet")[0][0].pos == ("A.",)


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16", "utf-8-sig"])
def test_a_table_that_is_not_utf_8_is_read_as_what_it_is(tmp_path: Path, encoding: str) -> None:
    """What a spreadsheet saves, and what public Chinese sets come in."""
    file = tmp_path / "chat.csv"
    file.write_bytes("question,answer\n感冒了怎么办,多喝水，注意休息。\n肚子疼吃什么,清淡饮食。\n".encode(encoding))
    kept, counts = run(tmp_path, "healthcaremagic", file)
    assert [(row.query, row.pos) for row in kept] == [
        ("感冒了怎么办", ("多喝水，注意休息。",)),
        ("肚子疼吃什么", ("清淡饮食。",)),
    ]
    assert counts["rows"] == 2


def test_a_collection_gives_its_training_judgements(tmp_path: Path) -> None:
    documents = [Document("d1", "Aspirin thins blood.", "Aspirin"), Document("d2", "Gout hurts."), Document("d3", "X.")]
    queries = [Query("q1", "aspirin thins blood, true?"), Query("q2", "only in the test")]
    qrels = {"train": [Qrel("q1", "d1", 1), Qrel("q1", "d2", 0), Qrel("q1", "gone", 1)], "test": [Qrel("q2", "d3", 1)]}
    folder = write_collection(tmp_path / "fever", documents, queries, qrels).path
    rows, counts = run(tmp_path, "fever", folder)
    assert rows == [
        TrainingRow(queries[0].text, ("Aspirin\nAspirin thins blood.",), ("Gout hurts.",), PRINTED["FEVER"])
    ]
    assert counts["judged_without_a_text"] == 1
    assert run(tmp_path, "fever", folder, split="test")[0][0].query == "only in the test"


def test_evaluation_sets_of_the_paper_are_refused_and_left_out_of_other_sets(tmp_path: Path) -> None:
    text = lines(
        {"source": "icliniq", "query": "Is it gout?", "document": "It may be."},
        {"source": "questionDoctor", "query": "Is it flu?", "document": "Hardly."},
    )
    for name in ("pubmedqa", "icliniq"):
        with pytest.raises(CurateError, match="evaluation set of the paper"):
            converted(tmp_path, name, "rows.jsonl", text)
    rows, counts = converted(tmp_path, "consult-qa", "rows.jsonl", text)
    assert [row.query for row in rows] == ["Is it flu?"] and counts["of_an_evaluation_set"] == 1
    with pytest.raises(CurateError, match=r"names icliniq, an evaluation set .* another name"):
        converted(tmp_path, "consult-qa", "icliniqQAs.jsonl", text)
    rows, _ = converted(tmp_path, "icliniq", "rows.jsonl", text, evaluation_sets=True)
    assert len(rows) == 2


def test_evaluation_sets_are_known_by_folders_spellings_and_other_fields(tmp_path: Path) -> None:
    dialogue = {"description": "An ear rings.", "utterances": ["patient: It rings.", "doctor: See someone."]}
    record = {"question": "Is it flu? I asked on iCliniq, too.", "answer": "Hardly."}
    for origin in (
        *(
            {"source": "pubmed_qa"},
            {"source": "PubMed QA"},
            {"dataset": "I-Cliniq"},
            {"meta": {"from": ["icliniq.com"]}},
        ),
        *({"file_name": "iCliniq-dialogues"}, {"answer_icliniq": "No."}),
    ):
        rows, counts = converted(tmp_path, "consult-qa", "rows.jsonl", lines(record | origin, record | {"source": "x"}))
        assert (len(rows), counts["of_an_evaluation_set"], counts["of_unknown_origin"]) == (1, 1, 0), origin
    for folder in ("icliniq", "i_cliniq"):
        (tmp_path / folder / "deep").mkdir(parents=True)
        (tmp_path / folder / "deep" / "train.jsonl").write_text(lines(dialogue), encoding="utf-8")
        for inside in ("", "deep", "deep/train.jsonl"):
            with pytest.raises(CurateError, match="names icliniq, an evaluation set"):
                run(tmp_path, "healthcaremagic", tmp_path / folder / inside)
    (tmp_path / "meddialog" / "icliniq").mkdir(parents=True)
    for part in ("icliniq/1.jsonl", "2.jsonl", "healthcaremagic-3.jsonl"):
        (tmp_path / "meddialog" / part).write_text(lines(dialogue | {"utterances": [part, "Rest."]}), encoding="utf-8")
    rows, counts = run(tmp_path, "healthcaremagic", tmp_path / "meddialog")
    assert [row.query for row in rows] == ["2.jsonl", "healthcaremagic-3.jsonl"]
    assert (counts["of_an_evaluation_set"], counts["of_unknown_origin"]) == (1, 1)
    held = write_collection(tmp_path / "PubMed-QA", [], [Query("q", "?")], {"train": []}).path
    with pytest.raises(CurateError, match="names pubmedqa, an evaluation set"):
        run(tmp_path, "nfcorpus", held)


def test_a_record_that_lacks_a_field_is_counted_as_one_that_cannot_be_read(tmp_path: Path) -> None:
    pair = {"sentence1": "Has fever.", "sentence2": "Is febrile.", "gold_label": "entailment"}
    wrong = ({"sentence1": "Has gout."}, {key: pair[key] for key in ("sentence1", "sentence2")})
    alone = {"sentence1": "Has gout.", "sentence2": "Has none.", "gold_label": "contradiction"}
    rows, counts = converted(tmp_path, "mednli", "a.jsonl", lines(wrong[0], pair, wrong[1], alone) + "{broken\n")
    assert [row.query for row in rows] == ["Has fever."]
    assert (counts["records"], counts["unreadable"], counts["without_a_field"]) == (5, 1, 2)
    assert (counts["without_a_positive"], counts["without_text"]) == (1, 0), "a contradiction without an entailment"
    with pytest.raises(CurateError, match=r"no record of .*not valid JSON"):
        converted(tmp_path, "mednli", "a.jsonl", "{broken\n{again\n")


def test_what_cannot_be_told_right_from_wrong_is_counted_and_never_taken_for_right(tmp_path: Path) -> None:
    pair = {"sentence1": "A man eats.", "sentence2": "Nobody eats."}
    right = {"sentence1": "A man eats.", "sentence2": "A human eats.", "label": "entailment"}
    rows, counts = converted(tmp_path, "nli", "scored.jsonl", lines(pair | {"score": 0.0}, right))
    assert rows[0].pos == ("A human eats.",) and counts["without_a_field"] == 1
    texts = {"query": "gout", "passages": {"passage_text": ["A goat.", "An arthritis."]}}
    told = {"query": "gout", "passages": {"passage_text": ["A goat.", "An arthritis."], "is_selected": [0, 1]}}
    for marks in ({}, {"is_selected": [1]}, {"is_selected": [None, 1]}):
        unsaid = texts | {"passages": texts["passages"] | marks}
        rows, counts = converted(tmp_path, "msmarco", "dev.jsonl", lines(unsaid, told))
        assert rows[0].pos == ("An arthritis.",) and counts["without_a_field"] == 1
    with pytest.raises(CurateError, match="not one number for each text"):
        converted(tmp_path, "msmarco", "eval.jsonl", lines(texts))
    with pytest.raises(CurateError, match="numbers where texts belong"):
        converted(tmp_path, "msmarco", "qidpidtriples.train.tsv", "1185869\t0\t2942565\n")


def test_a_source_without_a_table_says_what_is_read(tmp_path: Path) -> None:
    with pytest.raises(CurateError, match=r"dialogue_1\.txt: no table here; convert reads jsonl"):
        converted(tmp_path, "healthcaremagic", "healthcaremagic_dialogue_1.txt", "id=1\nPatient:\nMy ear rings.\n")
    with pytest.raises(CurateError, match="no table here"):
        run(tmp_path, "healthcaremagic", tmp_path / "source")
    packed = tmp_path / "7.xml.gz"
    packed.write_bytes(gzip.compress(XML.encode()))
    assert run(tmp_path, "medquad", packed)[0][0].query == "What is gout ?"


def test_what_is_wrong_with_records_is_counted(tmp_path: Path) -> None:
    text = lines(
        {"query": "What is gout?", "positive": "An arthritis.", "negative": "An  ARTHRITIS!"},
        {"query": "What is gout?", "positive": "An arthritis.", "negative": "A fish."},
        {"query": "Same.", "positive": "same", "negative": "A fish."},
        {"query": "", "positive": "No question.", "negative": None},
        {"query": "What is held out here today?", "positive": "A test question.", "negative": None},
        {"query": f"{PRINTED['MS Marco']} gout", "positive": "A.", "negative": None},
        {"query": "long", "positive": "First sentence. " + "Word " * 30, "negative": None},
    )
    held_out = HeldOut(["what is held out here today"])
    rows, counts = converted(tmp_path, "msmarco", "a.jsonl", text + "{broken\n", held_out=held_out, longest=60)
    assert [row.query for row in rows] == ["What is gout?", "long"]
    assert rows[0].neg == ("A fish.",) and rows[1].pos == ("First sentence.",)
    assert counts == {
        **dict.fromkeys(counts, 0),
        "records": 8, "unreadable": 1, "rows": 2, "merged_into_another": 1, "held_out": 1, "without_text": 1,
        "texts_cut": 1, "positive_is_the_query": 1, "negative_is_a_positive": 1, "begins_with_the_instruction": 1,
    }  # fmt: skip


def test_a_draw_is_seeded_and_keeps_the_order(tmp_path: Path) -> None:
    text = lines(*({"question": f"q{number}", "answer": f"a{number}"} for number in range(50)))
    rows, counts = converted(tmp_path, "gooaq", "a.jsonl", text, count=5, seed=3)
    numbers = [int(row.query[1:]) for row in rows]
    assert numbers == sorted(numbers) and counts["rows"] == 5 and counts["not_drawn"] == 45
    assert rows == converted(tmp_path, "gooaq", "a.jsonl", text, count=5, seed=3)[0]
    assert rows != converted(tmp_path, "gooaq", "a.jsonl", text, count=5, seed=4)[0]


def test_a_set_of_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "sets.toml"
    own.write_text('[mine]\nquery = ["q"]\npositive = ["a"]\ninstruction = "Find it"\n', encoding="utf-8")
    rows, _ = converted(tmp_path, "mine", "a.jsonl", lines({"q": "Where?", "a": "There."}), sets=own)
    assert rows == [TrainingRow("Where?", ("There.",), (), "Find it")]
    own.write_text('[mine]\nquery = ["q"]\npositive = ["a"]\npublished = "Nowhere"\n', encoding="utf-8")
    with pytest.raises(CurateError, match="mine has no instruction"):
        converted(tmp_path, "mine", "a.jsonl", lines({"q": "Where?", "a": "There."}), sets=own)
    own.write_text('[mine]\nquestion = ["q"]\n', encoding="utf-8")
    with pytest.raises(
        CurateError, match=r"sets\.toml: mine\.query: missing\. Add it\.(.|\n)*mine\.question: no such key"
    ):
        read_sets(own)


@pytest.mark.parametrize(
    ("name", "file", "text", "kind", "problem"),
    [
        ("unknown", "a.jsonl", "{}\n", CurateError, "there is no set 'unknown': choose medquad"),
        ("gooaq", "a.jsonl", lines({"ask": "x", "answer": "y"}), CurateError, "called question; .*ask, answer"),
        ("mednli", "a.jsonl", lines({"sentence1": "x", "sentence2": "y"}), CurateError, "no field called gold_label"),
        ("medquad", "a.xml", "<Document><QAPair>", CorpusError, "not whole XML"),
        ("mqp", "a.csv", "1,What?,How?,0\n", CurateError, "no row is left .*1 without a positive"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_what_it_should_be(
    tmp_path: Path, name: str, file: str, text: str, kind: type[Exception], problem: str
) -> None:
    with pytest.raises(kind, match=problem):
        converted(tmp_path, name, file, text)
    assert not (tmp_path / "rows.jsonl").exists()
