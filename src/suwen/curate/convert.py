"""Public question, dialogue and sentence-pair sets to training rows with their instruction (BMRetriever, appendix B).

The sets are data, ``labelled_sets.toml``: which field is the query, what answers it, what does not, and which labels
say so. Contradictions and pairs of different meaning become hard negatives. The words of the instructions are brought
by the caller.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from suwen.choices import LONGEST_TEXT
from suwen.corpora.collection import Collection
from suwen.corpora.collection_layouts import find_layout
from suwen.corpora.files import BadRecord, encoding_of, not_there
from suwen.corpora.pubmed import is_xml, source_files
from suwen.corpora.tabular import Row, format_of, rows
from suwen.corpora.text_documents import files_under
from suwen.corpora.training_rows import TrainingRow
from suwen.corpora.xml_files import xml_elements
from suwen.curate import CurateError
from suwen.curate.leakage import HeldOut
from suwen.curate.merged_rows import COUNTED as MERGED
from suwen.curate.merged_rows import merged
from suwen.curate.screening import Screen, check_output
from suwen.errors import SuwenError
from suwen.text.clean import clean
from suwen.toml_keys import explain_keys

SETS = Path(__file__).parent / "labelled_sets.toml"
#: Fields that say where a record comes from.
ORIGINS = (
    *("source", "file_name", "url", "dialogue_url", "link", "dataset", "data_source", "dataset_name", "origin"),
    *("site", "website", "subset", "corpus"),
)
#: Characters of a value that may be a name or an address; what is longer is a text, which may speak of any site.
_LONGEST_NAME = 300
_NOT_COMPARED = re.compile(r"[\W_]+")
#: So many files, or labels, are named in a message.
_NAMED = 5
#: Words in the names of files that are one part of a set.
_SPLITS = frozenset(("train", "dev", "valid", "validation", "test"))
#: Reasons why nothing is read of a record; where nothing is read of any, the first is told.
_UNUSED = ("unreadable", "without_a_field", "of_another_split")
#: A record of a file, the row that it makes and its label.
_Readable = tuple[Path, Mapping[str, Any], TrainingRow, Any]


class LabelledSet(BaseModel):
    """One data set, as ``labelled_sets.toml`` explains the keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    query: tuple[str, ...]
    positive: tuple[str, ...]
    negative: tuple[str, ...] = ()
    label: tuple[str, ...] = ()
    labels: Mapping[str, Literal["positive", "negative"]] = {}
    marks: tuple[str, ...] = ()
    best: bool = False
    columns: tuple[str, ...] = ()
    element: str = ""
    speakers: tuple[str, ...] = ()
    published: str = ""
    instruction: str = ""
    measured: bool = False
    mixed: bool = False


#: What is counted beside what :class:`~suwen.curate.screening.Screen` counts.
COUNTED = (
    *("files_left_out", "records", "unreadable", "without_a_field", "of_another_split", "of_an_evaluation_set"),
    *("of_unknown_origin", "of_neither_label", "judged_without_a_text", *MERGED),
)


def read_sets(path: Path | None = None) -> dict[str, LabelledSet]:
    """The sets that come with suwen, and those of a file of one's own in the same form, which go before."""
    if path and not path.is_file():
        raise CurateError(not_there(path))
    sets = TypeAdapter(dict[str, LabelledSet])
    shipped, own = tomllib.loads(SETS.read_text(encoding="utf-8")), dict[str, Any]()
    try:
        own = tomllib.loads(path.read_text(encoding="utf-8")) if path else {}
        return sets.validate_python({**shipped, **own})
    except ValidationError as problem:
        keys = ", ".join(LabelledSet.model_fields)
        raise CurateError(
            f"{explain_keys(path or SETS, own, problem)}\nA set is a table [NAME] with some of these: {keys}. "
            f"{SETS.name} explains them, and has examples."
        ) from None
    except (OSError, ValueError) as problem:
        raise CurateError(f"{path}: no TOML file in UTF-8 ({problem}): correct that line") from None


def convert(
    name: str,
    source: Path,
    to: Path,
    instructions: Mapping[str, str],
    *,
    sets: Path | None = None,
    count: int | None = None,
    seed: int = 0,
    split: str = "train",
    held_out: HeldOut | None = None,
    longest: int = LONGEST_TEXT,
    evaluation_sets: bool = False,
    progress: Callable[[int, int], None] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Counter[str]:
    """Write the training rows of a local copy of a data set.

    Records stream through, but for sentence pairs with labels, which are gathered by their first sentence, rows that
    may have negatives (see :mod:`~suwen.curate.merged_rows`), and BEIR's folders, whose judged documents are held.

    Args:
        name: The set, see :func:`read_sets`.
        source: Its file, a folder of its files, or a folder in BEIR's layout.
        to: The rows.
        instructions: What a paper prints for each set, by the name it has there.
        sets: A file of further sets.
        count: Draw so many rows; all unless given.
        seed: Of the draw.
        split: The judgements that are taken from a folder in BEIR's layout, and the records of a table with a field
            ``split``: those whose split begins with it, as ``training`` does with ``train``.
        held_out: What must not be trained on.
        longest: See :class:`~suwen.curate.screening.Screen`.
        evaluation_sets: Take records of sets the paper measures on as well.
        progress: See :class:`~suwen.curate.screening.Screen`.
        tell: Called with the names of files of a folder that are left out.
    """
    check_output(to, source)
    known = read_sets(sets)
    if name not in known:
        raise CurateError(f"there is no set {name!r}: choose {', '.join(known)}, or describe it in a file (--sets)")
    kind = known[name]
    if kind.measured and not evaluation_sets:
        raise CurateError(
            f"{name} is an evaluation set of the paper, and nothing is trained on it: what is measured on it would be "
            "worth nothing. If you measure elsewhere, pass --evaluation-sets; such a run is not the paper's"
        )
    instruction = kind.instruction or instructions.get(kind.published, "")
    if not instruction:
        raise CurateError(f"{name} has no instruction: name its row of the paper's table (published), or write one")
    measured = () if evaluation_sets else tuple(other for other, one in known.items() if one.measured)
    if found := named(measured, source.absolute().parts):
        raise CurateError(
            f"{source.absolute()} names {found}, an evaluation set of the paper, and nothing is trained on it. If "
            "nothing of it is in there, give it another name; if you measure elsewhere, pass --evaluation-sets"
        )
    screen = Screen(*COUNTED, held_out=held_out, longest=longest, progress=progress)
    if source.is_dir() and find_layout(source).corpus:
        examples = _judged(Collection.open(source), split, screen.counts)
    else:
        files = _files(source, name, kind, split)
        if left_out := [path for path in files_under(source) if path not in files] if source.is_dir() else []:
            screen.counts["files_left_out"] = len(left_out)
            tell(f"{len(left_out):,} files of {source} are no tables of {name}'s {split}: {_shown(left_out)}")
        records = _readable(source, _records(files, kind), kind, measured, split, screen.counts)
        examples = _examples(records, name, kind, screen.counts)
        if kind.negative:
            examples = merged(_not_held_out(examples, held_out, screen.counts), screen.counts)
    screen.write(to, (row._replace(prompt=instruction) for row in examples), count, seed)
    return screen.counts


def _judged(collection: Collection, split: str, counts: Counter[str]) -> Iterator[TrainingRow]:
    """The judged queries of a collection: grades above 0 answer, a 0 is a negative."""
    judged = collection.qrels(split)
    wanted = {id_ for grades in judged.values() for id_ in grades}
    texts = {document.id: document.content for document in collection.documents() if document.id in wanted}
    for query in collection.queries(split):
        counts["records"] += 1
        grades = {id_: grade for id_, grade in judged[query.id].items() if id_ in texts}
        counts["judged_without_a_text"] += len(judged[query.id]) - len(grades)
        pos, neg = (tuple(texts[id_] for id_ in grades if (grades[id_] > 0) is right) for right in (True, False))
        yield TrainingRow(query.text, pos, neg)


def named(names: Iterable[str], texts: Iterable[str]) -> str | None:
    """The first of the names that stands in one of the texts, compared by letters and digits alone.

    >>> named(["pubmedqa", "icliniq"], ["data", "PubMed_QA-labeled"]), named(["icliniq"], ["questionDoctor"])
    ('pubmedqa', None)
    """
    bare = [_bare(text) for text in texts]
    return next((name for name in names if any(_bare(name) in text for text in bare)), None)


def _bare(text: str) -> str:
    return _NOT_COMPARED.sub("", text).casefold()


def _names(value: Any) -> Iterator[str]:
    """What a value has of names and addresses, those of fields too."""
    if isinstance(value, Mapping):
        yield from map(str, value)
    if isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _names(item)
    elif isinstance(value, str) and len(value) <= _LONGEST_NAME:
        yield value


def _examples(
    records: Iterable[_Readable], name: str, kind: LabelledSet, counts: Counter[str]
) -> Iterator[TrainingRow]:
    pairs, others, unlabelled = dict[str, TrainingRow](), dict[str, None](), False
    for path, record, row, label in records:
        if kind.mixed and not (named([name], path.parts) or any(record.get(field) for field in ORIGINS)):
            counts["of_unknown_origin"] += 1
        if label is None:
            unlabelled = True
            yield row
        elif (says := kind.labels.get(str(label).lower().removesuffix(".0"))) is None:
            counts["of_neither_label"] += 1
            others |= {str(label): None} if len(others) < _NAMED else {}
        else:
            pair = pairs.get(row.query, TrainingRow(row.query, ()))
            sides = (pair.pos + row.pos, pair.neg) if says == "positive" else (pair.pos, pair.neg + row.pos)
            pairs[row.query] = TrainingRow(row.query, *sides)
    if others and not pairs and not unlabelled:
        raise CurateError(
            f"no label says which texts of {name} go together: expected are {', '.join(kind.labels)}, found "
            f"{', '.join(others)}. Write those, or say what these mean in a table of your own (--sets)"
        )
    yield from pairs.values()


def _readable(
    source: Path,
    records: Iterable[tuple[Path, *Row]],
    kind: LabelledSet,
    measured: Sequence[str],
    split: str,
    counts: Counter[str],
) -> Iterator[_Readable]:
    """The records of the split and of no measured set that have what a row needs; none at all raises."""
    problem: SuwenError | None = None
    texts = {_root(field) for field in (*kind.query, *kind.positive, *kind.negative)}
    for path, place, record in records:
        counts["records"] += 1
        if isinstance(record, BadRecord):
            counts["unreadable"] += 1
            problem = problem or record
            continue
        # A post may speak of a site it does not come from; where there is no text, every name counts.
        said = _names({field: () if field in texts else value for field, value in record.items()})
        if named(measured, [*path.relative_to(source).parts, *said]):
            counts["of_an_evaluation_set"] += 1
            continue
        if "split" not in texts and isinstance(own := record.get("split"), str) and not _is_of(own, split):
            counts["of_another_split"] += 1
            problem = problem or CurateError(f"{place}: it is of the split {own}, and {split} is taken (--split)")
            continue
        try:
            row = _row(record, kind, place)
            # Without a label or a negative of its own, a pair may be a contradiction.
            unsaid = bool(kind.label) and not any(_root(name) in record for name in kind.negative)
            label = _field(record, kind.label, place, needed=unsaid)
        except CurateError as lacking:
            counts["without_a_field"] += 1
            problem = problem or lacking
            continue
        yield path, record, row, label
    if not counts["records"]:
        raise CurateError(f"{source}: no record here{f', no element {kind.element}' if kind.element else ''}")
    if problem and sum(counts[reason] for reason in _UNUSED) == counts["records"]:
        raise CurateError(f"no record of {source} can be used. The first: {problem}") from None


def _not_held_out(rows: Iterable[TrainingRow], held_out: HeldOut | None, counts: Counter[str]) -> Iterator[TrainingRow]:
    """The rows without a text that is held out: merged first, one such negative would cost those of all the others."""
    for row in rows:
        if held_out is not None and held_out.hits((row.query, *row.pos, *row.neg)):
            counts["held_out"] += 1
        else:
            yield row


def _is_of(own: str, split: str) -> bool:
    """Whether a record's split is the one that is taken; an empty one says nothing."""
    own = own.strip().lower()
    return not own or own.startswith(split.lower())


def _row(record: Mapping[str, Any], kind: LabelledSet, place: str) -> TrainingRow:
    queries = _texts(_field(record, kind.query, place, needed=True), kind)
    pos = _texts(_field(record, kind.positive, place, needed=True), kind)
    neg = _texts(_field(record, kind.negative, place), kind)
    if pos and all(text.isdigit() for text in (*queries, *pos)):
        raise CurateError(f"{place}: numbers where texts belong; put the texts in the place of these ids first")
    if any(_root(name) in record for name in kind.marks):
        marks = _field(record, kind.marks, place)
        if not isinstance(marks, list) or [isinstance(mark, int | float) for mark in marks] != [True] * len(pos):
            raise CurateError(f"{place}: {kind.marks[0]} has not one number for each text; none is known to be right")
        right = [mark == max(marks) if kind.best else mark > 0 for mark in marks]
        neg += [] if kind.best else [text for text, may in zip(pos, right, strict=True) if not may]
        pos = [text for text, may in zip(pos, right, strict=True) if may]
    return TrainingRow(queries[0] if queries else "", tuple(pos), tuple(neg))


def _field(record: Mapping[str, Any], names: Sequence[str], place: str, *, needed: bool = False) -> Any:
    """What a record has under the first name that is there; where it has none, None or an error."""
    for name in names:
        first, *rest = name.split(".")
        if first in record:
            return reduce(_inside, rest, record[first])
    if needed:
        raise CurateError(
            f"{place}: no field called {' or '.join(names)}; the fields here are: {', '.join(map(str, record))}. "
            "Describe the file in a table of your own (--sets)"
        )
    return None


def _inside(value: Any, step: str) -> Any:
    if isinstance(value, list):
        # Parquet has a column of lists where JSON has a list of objects.
        return dict(enumerate(value)).get(int(step)) if step.isdigit() else [_inside(item, step) for item in value]
    return value.get(step) if isinstance(value, Mapping) else None


def _root(name: str) -> str:
    return name.partition(".")[0]


def _texts(value: Any, kind: LabelledSet) -> list[str]:
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts(item, kind)]
    if isinstance(value, Mapping):
        # Where a passage of MS MARCO has no title, copies have "-" for one.
        parts = (str(value.get(part) or "") for part in ("title", "text"))
        value = "\n".join(part for part in parts if _bare(part))
    if not isinstance(value, str):
        return []
    speaker = re.match(rf"\s*(?:{'|'.join(kind.speakers)})\s*:", value, re.IGNORECASE) if kind.speakers else None
    return [clean(value[speaker.end() :] if speaker else value)]


def _files(source: Path, name: str, kind: LabelledSet, split: str) -> list[Path]:
    there = source_files(source)
    files = [path for path in there if kind.element or not is_xml(path)]
    # Where some files are named after the split (mli_train_v1, mli_dev_v1), those named after another one stay out.
    if source.is_dir() and any(split in _splits(path) for path in files):
        files = [path for path in files if _splits(path) <= {split}]
    if there and not files:
        raise CurateError(
            f"{there[0]}: no XML form of {name} is known; give a table (jsonl, json, csv, tsv, parquet) with fields "
            f"called {kind.query[0]} and {kind.positive[0]}, or with other names that {SETS.name} has for them"
        )
    if not files or format_of(files[0]) == "text":
        raise CurateError(f"{source}: no table here; convert reads jsonl, json, csv, tsv, parquet and MedQuAD's xml")
    return files


def _splits(path: Path) -> set[str]:
    return set(re.split(r"[^a-z]+", path.name.lower())) & _SPLITS


def _shown(paths: Sequence[Path]) -> str:
    return ", ".join(path.name for path in paths[:_NAMED]) + (", …" if len(paths) > _NAMED else "")


def _records(files: Iterable[Path], kind: LabelledSet) -> Iterator[tuple[Path, *Row]]:
    headings = {_root(name) for name in (*kind.query, *kind.positive, *kind.negative, *kind.label, *kind.marks)}
    for path in files:
        read = (
            (
                (place, {child.tag: child.text or "" for child in node})
                for place, node in xml_elements(path, kind.element)
            )
            if is_xml(path)
            else rows(path, format_of(path) or "jsonl", encoding_of(path), kind.columns, headings)
        )
        yield from ((path, place, record) for place, record in read)
