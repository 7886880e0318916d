"""Letting a jury vote on a pool: what is still missing is asked, and a batch's votes are stored when it is complete.

A passage that a reply leaves out or grades with nothing known is asked for once more, by itself; then it is an
abstention. A request that brought no reply at all is no vote: the next run asks again. A vote on a text that has
changed since is missing, too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from suwen.jury.judge_batches import Batch, Graded, JudgeRequests, JudgingSettings, again, order, read_grades
from suwen.jury.jury_folder import JuryFolder
from suwen.jury.pooling import PooledQuery, read_pool
from suwen.jury.texts import Texts
from suwen.jury.verdicts import Abstention, Judge, JuryProblem, Vote, is_on
from suwen.jury.votes import Votes
from suwen.llm.client import LLM
from suwen.llm.ledger import Plan, Spent, Summary
from suwen.llm.requests import Reply, Request

#: Marks the second request for a passage in the ledger.
_SECOND = "again:"


@dataclass(frozen=True)
class Judged:
    """What a run of judging came to.

    Attributes:
        votes: Votes that were added.
        abstentions: Those that are abstentions.
        kinds: How many of them are of each kind: ``cut``, ``empty``, ``refused``, ``malformed``.
        asked_again: Passages asked for a second time.
        failed: Batches that got no reply, or an incomplete one that could not be followed up: run again.
        problem: What went wrong with the first of them.
        spent: Calls, tokens and cost.
        seconds: How long it took.
        stopped: Why it ended early; None where it did not.
    """

    votes: int
    abstentions: int
    kinds: dict[str, int]
    asked_again: int
    failed: int
    problem: str | None
    spent: Spent
    seconds: float
    stopped: str | None

    @property
    def complete(self) -> bool:
        """Whether every judge has voted on every pair."""
        return self.stopped is None and not self.failed


class Jury:
    """Several judges before one pool."""

    def __init__(
        self,
        judges: Sequence[Judge],
        pool: Path,
        texts: Texts,
        votes: Votes,
        llm: LLM,
        settings: JudgingSettings | None = None,
        *,
        prompts: Path | None = None,
        retry: bool = False,
    ) -> None:
        """Bring a jury together.

        Args:
            judges: Who votes.
            pool: The pooled pairs.
            texts: Their texts.
            votes: Where the votes go.
            llm: The client.
            settings: How the judges are asked.
            prompts: A folder of prompts in place of the package's own.
            retry: Whether to ask again where a judge has abstained.
        """
        if not judges:
            raise JuryProblem("a jury needs at least one judge: name a model of suwen.toml")
        if len({judge.name for judge in judges}) < len(judges):
            raise JuryProblem("two judges have one name: write NAME=MODEL for one of them")
        self.settings = settings or JudgingSettings()
        self._judges = {judge.name: JudgeRequests(judge, llm.config, self.settings, prompts) for judge in judges}
        self._pool, self._texts, self._votes, self._llm = pool, texts, votes, llm
        # What is asked again is settled before the first call: an abstention of this run is not asked about in it.
        self._retried = votes.abstained() if retry else frozenset()

    def plan(self) -> Plan:
        """What judging would ask, if no reply were incomplete; makes no call."""
        return self._llm.plan(self._request(batch) for batch in self.batches())

    def batches(self) -> Iterator[Batch]:
        """The batches still without votes, the judges taking turns."""
        # Read through once before the first batch: a bad line must not be found after money is spent.
        second = again([pooled.id for pooled in read_pool(self._pool)], self.settings)
        for pooled in read_pool(self._pool):
            ids = [candidate.passage_id for candidate in pooled.candidates]
            texts = self._texts.get(ids)
            queues: list[list[Batch]] = []
            for round_ in (0, 1) if pooled.id in second else (0,):
                queues += [self._missing(pooled, texts, judge, round_) for judge in self._judges.values()]
            while any(queues):
                yield from (queue.pop(0) for queue in queues if queue)

    def _missing(self, pooled: PooledQuery, texts: Mapping[str, str], judge: JudgeRequests, round_: int) -> list[Batch]:
        """The batches of a query that a judge has not voted on as its texts are; what is tried again comes first."""
        name = judge.judge.name
        cast = self._votes.of(pooled.id, name, round_)
        tries = self._votes.asked_again(pooled.id, name, round_)
        again = {id_ for id_ in cast if (pooled.id, id_, name, round_) in self._retried}
        done = {id_ for id_, vote in cast.items() if id_ in texts and is_on(vote, pooled.text, texts[id_])} - again
        missing = [id_ for id_ in order(list(texts), self.settings, pooled.id, name) if id_ not in done]
        query, batches = (pooled.id, pooled.text), list[Batch]()
        # A second try is a draw of its own, so what was tried as often is asked about together.
        for number in sorted({self._tries(id_, again, tries) for id_ in missing}, reverse=True):
            part = [id_ for id_ in missing if self._tries(id_, again, tries) == number]
            batches += [batch._replace(tries=number) for batch in judge.batches(query, texts, part, round_)]
        return batches

    @staticmethod
    def _tries(id_: str, again: Container[str], tries: Mapping[str, int]) -> int:
        return tries.get(id_, 0) + 1 if id_ in again else 0

    def judge(self) -> Judged:
        """Ask for every vote that is missing. Interrupt it and run it again: nothing is asked twice."""
        self._llm.config.require(one.judge.model for one in self._judges.values())
        # All batches are built once before the first is sent: what does not fit is reported before money is spent.
        total = sum(1 for _ in self.batches())
        for one in self._judges.values():
            self._votes.enrol(one.judge, one.model.model, one.prompt_name, one.prompt.fingerprint)
        run = _Run(self._judges, self._votes)
        first = self._llm.run(self._requests(run), run.take, total)
        follow_up = first.stopped is None and run.incomplete
        second = self._llm.run(run.second_requests(), run.take_second) if follow_up else None
        return run.report(first, second)

    def _requests(self, run: _Run) -> Iterator[Request]:
        for batch in self.batches():
            run.open[batch.key] = batch
            yield self._request(batch)

    def _request(self, batch: Batch) -> Request:
        return self._judges[batch.judge.name].request(batch)


def judge_folder(
    folder: JuryFolder,
    judges: Sequence[Judge],
    llm: LLM,
    settings: JudgingSettings,
    *,
    prompts: Path | None = None,
    retry: bool = False,
    dry_run: bool = False,
) -> Judged | Plan:
    """Let judges vote on the pool of a jury's folder; in a dry run, plan it. See :class:`Jury`."""
    with Texts(folder.texts) as texts, Votes(folder.votes) as votes:
        jury = Jury(judges, folder.pool, texts, votes, llm, settings, prompts=prompts, retry=retry)
        return jury.plan() if dry_run else jury.judge()


class _Run:
    """The state of one run: batches on their way, incomplete ones, counts."""

    def __init__(self, judges: dict[str, JudgeRequests], votes: Votes) -> None:
        self._judges, self._votes = judges, votes
        self.open: dict[str, Batch] = {}
        #: Batches that lack grades, with those they have and the key of the reply they came in.
        self.incomplete: dict[str, tuple[Batch, dict[str, Graded], str]] = {}
        self._added = self._again = self._failed = 0
        self._abstained: Counter[str] = Counter()
        self._problem: str | None = None

    def take(self, request: Request, reply: Reply) -> None:
        """Store the votes of a batch, or keep it for a second request."""
        batch = self.open.pop(request.key)
        key = self._judges[batch.judge.name].reply_key(request)
        grades = self._grades(batch, reply)
        if grades is None:
            return
        if any(graded.grade is None and graded.abstained != "refused" for graded in grades.values()):
            self.incomplete[batch.key] = (batch, grades, key)
        else:
            self._store(batch, grades, dict.fromkeys(grades, key))

    def second_requests(self) -> list[Request]:
        """One request for each incomplete batch, with the passages that have no grade."""
        requests = []
        for batch, grades, _ in self.incomplete.values():
            rest = self._rest(batch, grades)
            self._again += len(rest.passages)
            # Where nothing at all was graded the request is the first one again: it must be another draw.
            request = self._judges[batch.judge.name].request(rest, sample=1)
            requests.append(replace(request, key=f"{_SECOND}{batch.key}"))
        return requests

    def take_second(self, request: Request, reply: Reply) -> None:
        """Store the votes of a batch: what has no grade now is an abstention."""
        batch, grades, first_key = self.incomplete.pop(request.key.removeprefix(_SECOND))
        rest = self._rest(batch, grades)
        more = self._grades(rest, reply)
        if more is None:
            return
        second_key = self._judges[batch.judge.name].reply_key(request)
        keys = {id_: second_key if id_ in more else first_key for id_ in grades}
        self._store(batch, grades | more, keys)

    def _rest(self, batch: Batch, grades: dict[str, Graded]) -> Batch:
        return batch._replace(passages=tuple(shown for shown in batch.passages if grades[shown.id].grade is None))

    def _grades(self, batch: Batch, reply: Reply) -> dict[str, Graded] | None:
        """What a reply says of each passage; None where none came, which is no vote."""
        if reply.finish == "refusal":
            refused = Graded(None, "refused", (reply.error or "")[:500])
            return dict.fromkeys((shown.id for shown in batch.passages), refused)
        if not reply.good and not reply.text and not reply.tokens_in:
            self._failed += 1
            self._problem = self._problem or reply.error
            return None
        lacking: Abstention = "cut" if reply.finish == "length" else "malformed" if reply.text else "empty"
        return read_grades(reply.text, batch, reply.data, lacking)

    def _store(self, batch: Batch, grades: dict[str, Graded], keys: dict[str, str]) -> None:
        judge, now = self._judges[batch.judge.name], time.time()
        votes = [
            Vote(
                batch.query_id,
                shown.id,
                batch.judge.name,
                batch.round,
                *grades[shown.id],
                judge.model.model,
                judge.prompt_name,
                judge.prompt.fingerprint,
                keys[shown.id],
                position,
                len(batch.passages),
                shown.cut,
                shown.digest,
                now,
            )
            for position, shown in enumerate(batch.passages, 1)
        ]
        there = self._votes.of(batch.query_id, batch.judge.name, batch.round)
        old = {id_ for id_, vote in there.items() if vote.grade is None or vote.digest not in _digests(batch)}
        # A grade on these texts that another process was first to store stays.
        fresh = [vote for vote in votes if vote.passage_id in old or vote.passage_id not in there]
        self._added += self._votes.replace(fresh) if old else self._votes.add(votes)
        self._abstained.update(vote.abstained for vote in votes if vote.abstained is not None)

    def report(self, first: Summary, second: Summary | None) -> Judged:
        """What the run came to."""
        return Judged(
            self._added,
            self._abstained.total(),
            dict(self._abstained),
            self._again,
            self._failed + len(self.incomplete),
            self._problem,
            first.spent + (second.spent if second else Spent()),
            first.seconds + (second.seconds if second else 0.0),
            first.stopped or (second.stopped if second else None),
        )


def _digests(batch: Batch) -> set[str]:
    return {shown.digest for shown in batch.passages}
