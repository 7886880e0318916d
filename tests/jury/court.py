"""What the tests of the jury share: small pools made by hand, scripted judges that read the prompt. No test here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from suwen.corpora.records import Document
from suwen.jury.jury_folder import JuryFolder
from suwen.jury.texts import Texts
from suwen.jury.verdicts import Vote
from suwen.llm.config import LLMConfig

#: What a judge makes of a query and a passage: a grade, or something else in its place.
Opinion = Callable[[str, str, str], str]
_PASSAGE = re.compile(r"【(P\d+)】\n(.*?)(?=\n\n【P|\n\n以 JSON|\n\nAnswer in JSON)", re.S)
_QUERY = re.compile(r"^(?:问题：|Query: )(.*?)$", re.M)


def asked(body: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """The query and the passages of a prompt, by label."""
    text = next(message["content"] for message in body["messages"] if message["role"] == "user")
    query = _QUERY.search(text)
    assert query is not None
    return query[1], dict(_PASSAGE.findall(text))


def judges(opinion: Opinion, reason: bool = True) -> Callable[[Mapping[str, Any]], str]:
    """A scripted model that grades each passage of a prompt by an opinion of (model, query, passage)."""

    def play(body: Mapping[str, Any]) -> str:
        query, passages = asked(body)
        said = {label: opinion(body["model"], query, passage) for label, passage in passages.items()}
        entries = {label: {"reason": f"因为{grade}", "grade": grade} for label, grade in said.items()}
        return json.dumps(
            entries if reason else {k: {"grade": v["grade"]} for k, v in entries.items()}, ensure_ascii=False
        )

    return play


def by_mark(model: str, query: str, passage: str) -> str:
    """The grade a passage carries as its last letter."""
    return passage.strip()[-1]


def make_pool(folder: Path, pairs: Mapping[str, Sequence[str]], texts: Mapping[str, str] | None = None) -> JuryFolder:
    """A pool of ``{query id: passage ids}``; a passage's text is its id unless given, a query's ``query <id>``."""
    work = JuryFolder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with work.pool.open("w", encoding="utf-8") as file:
        for query, passages in pairs.items():
            found = [{"retriever": "lexical", "rank": 1, "score": 1.0}]
            candidates = [{"passage_id": id_, "found": found} for id_ in passages]
            line = {"query_id": query, "query": f"query {query}", "candidates": candidates}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    every = dict.fromkeys(id_ for passages in pairs.values() for id_ in passages)
    with Texts(work.texts, create=True) as store:
        store.want(every)
        store.fill(Document(id_, (texts or {}).get(id_, f"text of {id_}")) for id_ in every)
    return work


def config(url: str, models: Sequence[str] = ("one", "two", "three"), **model: Any) -> LLMConfig:
    """One endpoint in a hurry, and models of these names."""
    here = {"base_url": url, "concurrency": 4, "timeout": 30.0, "backoff": 0.01, "identity": "scripted"}
    named = {name: {"endpoint": "here", "model": name} | model for name in models}
    return LLMConfig.model_validate({"endpoints": {"here": here}, "models": named})


def vote(query: str, passage: str, judge: str, grade: str | None, round_: int = 0, **more: Any) -> Vote:
    """A vote as a test needs it."""
    abstained = None if grade else "malformed"
    made = Vote(
        query, passage, judge, round_, grade, abstained, "", judge, "grade/zh/1", "f", "k", 1, 1, False, "d", 0.0
    )
    return made._replace(**more)
