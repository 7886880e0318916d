"""Asking a language model for queries of documents and hypothetical documents of queries, in bulk; nothing is encoded.

Replies are cached and durable by ``llm/``, so that what was written is not written again, and a run that was stopped
goes on. What cannot be used is counted by its fault and left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from suwen.hyde import HydeError
from suwen.hyde.checks import Fault, speaks, stripped, usable
from suwen.llm.asker import Drafter, Step, Unfinished
from suwen.llm.client import LLM, Handle
from suwen.llm.requests import Reply, Request

#: What a query is: a question, a title, a passage (Q2P, T2P and P2P of AutoMIR's Table 10).
#: What queries are, and what is written for them: for a question, a title or a passage a passage, as in the paper; and
#: for a question the title of a page (q2t), where documents are such titles.
Kind = Literal["q2p", "t2p", "p2p", "q2t"]
PROMPTS: dict[Kind, str] = {
    "q2p": "hyde-question",
    "t2p": "hyde-title",
    "p2p": "hyde-passage",
    "q2t": "hyde-page",
}
#: Least characters of what is one line: a title, or a query.
_ONE_LINE = 4
DOMAINS = {"zh": "医学", "en": "medical"}


@dataclass(frozen=True)
class Draws:
    """How texts are drawn from the model.

    Attributes:
        temperature: 0.7 as the paper evaluates; 0 is the released code's.
        top_p: Draw among the likeliest that have this much of the probability together; None for the model's own.
        top_k: Draw among so many of the likeliest; None for the model's own.
        max_tokens: The most tokens of a text.
        seed: Other seeds are other draws.
    """

    temperature: float = 0.7
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int = 256
    seed: int = 0

    def fields(self, draw: int) -> dict[str, Any]:
        """The fields of a request for the draw of a number."""
        more = {key: value for key in ("top_p", "top_k") if (value := getattr(self, key)) is not None}
        # Far apart, so that no seed's draws are another's.
        sample = 1000 * self.seed + draw
        return {"temperature": self.temperature, "max_tokens": self.max_tokens, "more": more, "sample": sample}


#: How queries are drawn, as in the released code.
QUERIES = Draws(temperature=1.0, top_p=0.8, max_tokens=64)


@dataclass
class Writer:
    """One model that writes in one language about one domain.

    Attributes:
        llm: The client.
        model: The configured name of the model.
        language: Of the prompts and of what is written.
        domain: The word for what the texts are about; the language's word for medicine unless given.
        counts: What was asked, and how much of it was kept, or what was wrong with it.
        steps: What each step asked of the model.
        problem: The first thing that went wrong with a request.
    """

    llm: LLM
    model: str
    language: str = "zh"
    domain: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    steps: dict[str, Step] = field(default_factory=dict)
    problem: str | None = None

    def __post_init__(self) -> None:
        """Check the name before anything is asked."""
        self.llm.config.model(self.model)
        self.domain = self.domain or DOMAINS.get(self.language, DOMAINS["en"])
        self._drafter = Drafter(self.llm.config, self.model, self.language)

    def documents(
        self,
        queries: Sequence[str],
        count: int = 1,
        *,
        kind: Kind = "q2p",
        draws: Draws | None = None,
        targets: Sequence[str] | None = None,
    ) -> list[list[str]]:
        """Hypothetical documents of each query: as many as were asked for, less those of no use.

        Args:
            queries: The queries.
            count: Documents of each.
            kind: What the queries are, and what is written for them.
            draws: How they are drawn.
            targets: For training, the right document of each query, which the model is then shown.
        """
        how = draws or Draws()
        if how.temperature == 0 and count > 1:
            raise HydeError(f"{count} documents at a temperature of 0 would all be the same: raise it, or ask for one")
        found: list[dict[int, str]] = [{} for _ in queries]

        def take(request: Request, reply: Reply) -> None:
            number, draw = map(int, request.key.split("/"))
            text = self.line(request, reply) if kind == "q2t" else self.kept(request, reply)
            if text is not None and text == queries[number]:
                self._copied()
            elif text is not None:
                found[number][draw] = text

        requests = self.document_requests(queries, count, kind, how, targets)
        self._run("documents", requests, take, count * len(queries))
        return [[texts[draw] for draw in sorted(texts)] for texts in found]

    def queries(self, documents: Sequence[str], *, draws: Draws | None = None) -> list[str | None]:
        """A query for each document; None where what was written is of no use."""
        how = draws or QUERIES
        found: list[str | None] = [None] * len(documents)

        def take(request: Request, reply: Reply) -> None:
            number = int(request.key)
            text = self.line(request, reply)
            if text and text in documents[number]:
                self._copied()
            else:
                found[number] = text

        self._run("queries", self.query_requests(documents, how), take, len(documents))
        return found

    def document_requests(
        self, queries: Sequence[str], count: int, kind: Kind, draws: Draws, targets: Sequence[str] | None
    ) -> Iterator[Request]:
        """What :meth:`documents` asks; a request's key is the query's number and the draw's."""
        name = PROMPTS[kind] if targets is None else "hyde-target"
        for number, query in enumerate(queries):
            values = {"domain": self.domain, "text": query}
            values |= {} if targets is None else {"target": targets[number]}
            long = ("text", "target")[: len(values) - 1]
            for draw in range(count):
                yield self._drafter.request(name, values, key=f"{number}/{draw}", long=long, **draws.fields(draw))

    def query_requests(self, documents: Sequence[str], draws: Draws) -> Iterator[Request]:
        """What :meth:`queries` asks; a request's key is the document's number."""
        for number, text in enumerate(documents):
            values = {"domain": self.domain, "text": text}
            yield self._drafter.request("hyde-query", values, key=str(number), long=("text",), **draws.fields(0))

    def _copied(self) -> None:
        """Count what was kept so far as a copy."""
        self.counts.update(kept=-1, copied=1)

    def _run(self, step: str, requests: Iterator[Request], take: Handle, total: int) -> None:
        account = self.steps.setdefault(step, Step(step))

        def noted(request: Request, reply: Reply) -> None:
            if _unanswered(reply):
                account.failed += 1
                self.problem = self.problem or reply.error
            take(request, reply)

        summary = self.llm.run(requests, noted, total)
        account.add(summary.spent.calls, summary.cached, summary.spent.tokens, summary.spent.cost)
        if summary.stopped is not None:
            raise Unfinished(f"hypothetical documents: {summary.stopped}")

    def line(self, request: Request, reply: Reply) -> str | None:
        """The first line of a reply that can be used: small models go on with an answer."""
        text = self.kept(request, reply, least=_ONE_LINE)
        return (text and text.splitlines()[0].strip()) or None

    def kept(self, request: Request, reply: Reply, least: int | None = None) -> str | None:
        """The text of a reply that can be used; its fault is counted where it cannot."""
        self.counts["asked"] += 1
        if _unanswered(reply):
            self.counts["unanswered"] += 1
            return None
        prompt = request.messages[-1].content
        if least is not None:
            text = stripped(reply.text)
            fault: Fault | None = None if speaks(text, self.language) else "language"
            fault = fault if len(text) >= least else "empty"
        else:
            text, fault = usable(reply.text, prompt=prompt, language=self.language, cut=reply.finish == "length")
        self.counts[fault or "kept"] += 1
        return None if fault else text


def _unanswered(reply: Reply) -> bool:
    return reply.finish in ("error", "refusal") or bool(reply.error and reply.finish != "length")
