"""Rankings of other people's systems on disk: TREC's run format, MS MARCO's, and JSON by query. Ranks nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from suwen.corpora.files import CorpusError, open_text
from suwen.durable import write_text


class RunLine(NamedTuple):
    """One hit of a run: where it stands in the file, its query, document and score."""

    place: str
    query_id: str
    document_id: str
    score: float


def read_run(path: Path) -> Iterator[RunLine]:
    """Read a run one hit at a time (``.gz`` too).

    A line is ``query Q0 document rank score tag`` (TREC); in a file called ``.tsv`` it may be ``query document rank``
    (MS MARCO, the best rank is 1); a file called ``.json`` is ``{query: {document: score}}``. As with trec_eval it is
    the score that ranks.

    Raises:
        CorpusError: A line is neither, or a score is no number.
    """
    if path.name.removesuffix(".gz").endswith(".json"):
        yield from _read_json(path)
        return
    short = path.name.removesuffix(".gz").endswith(".tsv")
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _line(line, f"{path}:{number}", short)


def _line(line: str, place: str, short: bool) -> RunLine:
    tabbed = line.rstrip("\r\n").split("\t")
    cells: Sequence[str] = tabbed if len(tabbed) in (3, 6) else line.split()
    if len(cells) == 6:
        return _hit(place, cells[0], cells[2], cells[4])
    if len(cells) == 3 and short:
        hit = _hit(place, cells[0], cells[1], cells[2])
        return hit._replace(score=-hit.score)
    raise CorpusError(f"{place}: {len(cells)} columns; a run has `query Q0 document rank score tag`")


def _hit(place: str, query: str, document: str, value: Any) -> RunLine:
    try:
        score = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        score = math.nan
    if math.isnan(score):
        raise CorpusError(
            f"{place}: query {query!r} scores document {document!r} as {value!r}, which is no number; correct the "
            "system that made the run"
        )
    return RunLine(place, query.strip(), document.strip(), score)


def _read_json(path: Path) -> Iterator[RunLine]:
    with open_text(path) as file:
        try:
            whole = json.load(file)
        except ValueError as problem:
            raise CorpusError(f"{path}: not JSON ({problem}); write {{query: {{document: score}}}}") from None
    if not isinstance(whole, dict) or not all(isinstance(hits, Mapping) for hits in whole.values()):
        raise CorpusError(f"{path}: not a run; write {{query: {{document: score}}}}")
    for query, hits in whole.items():
        yield from (_hit(str(path), query, document, score) for document, score in hits.items())


def read_ranking(path: Path) -> dict[str, list[tuple[str, float]]]:
    """Read a whole run: the documents and scores of each query, best first; of a tie the later id, as in trec_eval.

    Raises:
        CorpusError: There is no such file, it is empty, a line is bad, or a query ranks a document twice.
    """
    if not path.is_file():
        raise CorpusError(f"{path}: there is no such run; check the path")
    found: dict[str, dict[str, float]] = {}
    for place, query, document, score in read_run(path):
        hits = found.setdefault(query, {})
        if document in hits:
            raise CorpusError(f"{place}: query {query!r} ranks document {document!r} twice; keep it once")
        hits[document] = score
    if not found:
        raise CorpusError(f"{path}: the run is empty; write it again")
    return {
        query: sorted(hits.items(), key=lambda hit: (hit[1], hit[0]), reverse=True) for query, hits in found.items()
    }


def named_run(spec: str) -> tuple[str, Path]:
    """The name and the file of ``NAME=FILE``; a file alone is called by its name without the ending.

    >>> named_run("theirs=runs/a.trec"), named_run("runs/a.trec.gz")
    (('theirs', PosixPath('runs/a.trec')), ('a', PosixPath('runs/a.trec.gz')))
    """
    name, equals, file = spec.rpartition("=")
    path = Path(file)
    return (name if equals and name else path.name.removesuffix(".gz").rpartition(".")[0] or path.name), path


def read_trec_qrels(path: Path) -> dict[str, dict[str, int]]:
    """Read judgements as TREC has them, ``query 0 document grade``, or as BEIR has them, ``query document grade``.

    Raises:
        CorpusError: There is no such file, a line is neither, a grade is no whole number, or a pair is judged twice.
    """
    if not path.is_file():
        raise CorpusError(f"{path}: there are no judgements here; check the path")
    qrels: dict[str, dict[str, int]] = {}
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            cells = line.split("\t") if line.count("\t") in (2, 3) else line.split()
            if not line.strip() or (number == 1 and not _is_whole(cells[-1])):
                continue
            if len(cells) not in (3, 4) or not _is_whole(cells[-1]):
                raise CorpusError(f"{path}:{number}: not a judgement; write `query 0 document grade` (a whole number)")
            own = qrels.setdefault(cells[0].strip(), {})
            document = cells[-2].strip()
            if document in own:
                raise CorpusError(f"{path}:{number}: query {cells[0]!r} judges {document!r} twice; keep one of them")
            own[document] = int(cells[-1])
    if not qrels:
        raise CorpusError(f"{path}: there is no judgement in it")
    return qrels


def write_trec_qrels(path: Path, qrels: Mapping[str, Mapping[str, int]]) -> int:
    """Write judgements as TREC's tools read them, whole or not at all; gives their number.

    Raises:
        CorpusError: An id has white space in it, which would shift the columns.
    """
    lines = []
    for query, own in qrels.items():
        for document, grade in own.items():
            if any(part != "".join(part.split()) or not part for part in (query, document)):
                raise CorpusError(f"{query!r} or {document!r} has white space in it, which no qrels file can carry")
            lines.append(f"{query} 0 {document} {grade}\n")
    write_text(path, "".join(lines))
    return len(lines)


def _is_whole(text: str) -> bool:
    return text.strip().lstrip("-").isdigit()
