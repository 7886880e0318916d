"""Data that come as rows rather than as a collection: CARE and MTEB reranking rows, sentence pairs, triplets, cMedQA.

Where the files lie and which layout they have is for ``task_loading``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from suwen.bench.suite_tasks import Task
from suwen.bench.task_data import DataError, Judgements, Paired, Ranked, Source, make_ranked
from suwen.corpora.collection_layouts import tables_in
from suwen.corpora.record_fields import find_field
from suwen.corpora.records import Qrel
from suwen.corpora.tabular import records
from suwen.text.clean import clean

_FOLDERS = ("", "data", "default", "en", "zh")
_SAME_SPLIT = {"dev": ("dev", "validation", "valid"), "validation": ("validation", "valid", "dev")}
_LEFT = ("sentence1", "sentence_1", "text1", "text_1", "a", "s1", "question1")
_RIGHT = ("sentence2", "sentence_2", "text2", "text_2", "b", "s2", "question2")
_GOLD = ("score", "similarity", "similarity_score", "label", "labels")
_QUERY = ("query", "question", "anchor")
_POSITIVE = ("pos", "positive", "positives")
_NEGATIVE = ("neg", "negative", "negatives")
_ID = ("_id", "id", "qid", "query_id", "query-id")
_QUESTIONS, _ANSWERS = ("question.csv", "questions.csv"), ("answer.csv", "answers.csv")
_QUESTION_ID = ("question_id", "que_id", "q_id", "qid")
_ANSWER_ID = ("ans_id", "answer_id", "a_id", "aid")


def split_names(split: str) -> tuple[str, ...]:
    """The names a split goes by; dev and validation are one."""
    return _SAME_SPLIT.get(split, (split,))


def tables(path: Path, split: str) -> list[Path]:
    """The table files of one split: the file itself, those named after the split, or the only one there is."""
    if path.is_file():
        return [path]
    folders = dict.fromkeys(path / below for below in (*_FOLDERS, *split_names(split)))
    every = [table for folder in folders for table in tables_in(folder)]
    for name in split_names(split):
        pattern = re.compile(rf"(?:.*[-_.])?{re.escape(name)}(?:[-_.].*)?")
        if chosen := [file for file, stem in every if pattern.fullmatch(stem) or file.parent.name == name]:
            return chosen
    return [every[0][0]] if len(every) == 1 else []


def rows_of(files: Sequence[Path], format: str | None = None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each record of several files with its place; one that cannot be parsed stops the reading."""
    return (row for file in files for row in records(file, format))


def has_fields(files: Sequence[Path], *names: Sequence[str]) -> bool:
    """Whether the first record has a field out of each list of names."""
    _, first = next(rows_of(files), ("", {}))
    return all(any(name in first for name in choice) for choice in names)


def is_grouped(files: Sequence[Path]) -> bool:
    """Whether the rows hold a query with its positives."""
    return has_fields(files, _QUERY, _POSITIVE)


def read_pairs(task: Task, source: Source, files: Sequence[Path]) -> Paired:
    """Sentence pairs with a score each."""
    rows = [
        (_text(record, _LEFT, place), _text(record, _RIGHT, place), _gold(record, place))
        for place, record in rows_of(files)
    ]
    if len(rows) < 2:
        raise DataError(f"Task {task.name}: {source.path} holds {len(rows)} pairs; a correlation needs at least two")
    left, right, scores = (list(column) for column in zip(*rows, strict=True))
    return Paired(left, right, scores, source)


def _gold(record: Mapping[str, Any], place: str) -> float:
    name = find_field(record, _GOLD, place)
    try:
        score = float(record[name])
    except (TypeError, ValueError):
        score = math.nan
    if not math.isfinite(score):
        raise DataError(f"{place}: the field {name!r} holds {record[name]!r}; give each pair a number")
    return score


def read_grouped(task: Task, source: Source, files: Sequence[Path], lenient: bool) -> Ranked:
    """Rows of a query with positives and negatives: candidates of a reranking, or a pool to search."""
    pool: dict[str, str] = {}
    queries: list[tuple[str, str]] = []
    judgements = Judgements(lenient)
    repeated = 0
    paraphrase = task.kind == "paraphrase"
    for number, (place, record) in enumerate(rows_of(files)):
        id_ = next((str(record[name]) for name in _ID if record.get(name) not in (None, "")), f"q{number}")
        queries.append((id_, _text(record, _QUERY, place)))
        groups = ((1, _texts(record, _POSITIVE, place)), (0, [] if paraphrase else _texts(record, _NEGATIVE, place)))
        for grade, texts in groups:
            # The same passage twice in one list says nothing new; in both lists it contradicts itself.
            repeated += len(texts) - len(dict.fromkeys(texts))
            for text in dict.fromkeys(texts):
                document = pool.setdefault(text, f"d{len(pool)}")
                judgements.add(Qrel(id_, document, grade), place)
        if not judgements.grades.get(id_):
            raise DataError(f"{place}: query {id_!r} has an empty candidate list; give it passages, or remove the row")
    notes = [f"{repeated} passages stood twice in one list and count once"] if repeated else []
    documents = ((document, text) for text, document in pool.items())
    rerank = task.kind == "rerank"
    return make_ranked(task.name, source, documents, queries, judgements, rerank=rerank, notes=notes)


def cmedqa_files(path: Path, split: str) -> tuple[Path, Path, Path] | None:
    """Questions, answers and candidates of a cMedQA folder, or None where it is none."""
    if not path.is_dir():
        return None
    questions, answers = (
        next((path / name for name in names if (path / name).is_file()), None) for names in (_QUESTIONS, _ANSWERS)
    )
    names = [f"{name}_candidates{suffix}" for name in split_names(split) for suffix in (".txt", ".csv")]
    candidates = next((path / name for name in names if (path / name).is_file()), None)
    if questions is None or answers is None:
        return None
    if candidates is None:
        raise DataError(f"{path}: no {names[0]} beside {questions.name}; unpack the candidates of the split {split!r}")
    return questions, answers, candidates


def read_cmedqa(task: Task, source: Source, files: tuple[Path, Path, Path], lenient: bool) -> Ranked:
    """The csv files of cMedQA: a reranking of each question's candidates, or a search over all answers."""
    questions, answers, candidates = files
    judgements = Judgements(lenient)
    for place, record in records(candidates, "csv"):
        question = str(record[find_field(record, _QUESTION_ID, place)])
        if "pos_ans_id" in record:
            judged = {str(record["pos_ans_id"]): 1, str(record["neg_ans_id"]): 0}
        else:
            judged = {str(record[find_field(record, _ANSWER_ID, place)]): _label(record, place)}
        for answer, grade in judged.items():
            # A training candidates file repeats its positive in every row.
            if "pos_ans_id" not in record or judgements.grades.get(question, {}).get(answer) != grade:
                judgements.add(Qrel(question, answer, grade), place)
    texts = (
        (str(record[find_field(record, _ANSWER_ID, place)]), _text(record, ("content",), place))
        for place, record in records(answers, "csv")
    )
    rerank = task.kind == "rerank"
    if rerank:
        wanted = {answer for grades in judgements.grades.values() for answer in grades}
        texts = (item for item in texts if item[0] in wanted)
    asked = (
        (str(record[find_field(record, _QUESTION_ID, place)]), _text(record, ("content",), place))
        for place, record in records(questions, "csv")
    )
    return make_ranked(task.name, source, texts, asked, judgements, rerank=rerank)


def _label(record: Mapping[str, Any], place: str) -> int:
    value = record.get("label")
    if value not in ("0", "1"):
        raise DataError(f"{place}: the label is {value!r}; a candidate's label is 0 or 1")
    return int(value)


def _text(record: Mapping[str, Any], names: Sequence[str], place: str) -> str:
    name = find_field(record, names, place)
    text = clean(record[name]) if isinstance(record[name], str) else ""
    if not text:
        raise DataError(f"{place}: the field {name!r} holds no text; correct the row, or remove it")
    return text


def _texts(record: Mapping[str, Any], names: Sequence[str], place: str) -> list[str]:
    name = next((name for name in names if name in record), None)
    value = record[name] if name else []
    items = [value] if isinstance(value, str) else (value or [])
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise DataError(f"{place}: the field {name!r} must hold a list of texts")
    return [text for item in items if (text := clean(item))]
