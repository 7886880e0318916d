"""An index on a server, with the verbs of one that is open here. By the standard library alone; decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from suwen.choices import Mode
from suwen.corpora.records import Document, Passage
from suwen.index.engine import Backlog, Stats, StoredDocument, StoredPassage
from suwen.index.filters import Where
from suwen.retrieve.ingest import Duplicates, IngestProgress, IngestReport
from suwen.retrieve.results import Explanation, Facet, FacetValue, Highlight, Hit, Leg, Results
from suwen.service.adding_client import add_documents
from suwen.service.service_client import Client, ServerAway, ServerError, delete_documents, patiently

#: Ids and hits asked for at once.
_IDS, _PAGE = 1000, 500


class RemoteIndex(AbstractContextManager["RemoteIndex"]):
    """An index behind a server's address. Made by :func:`suwen.connect`; used by one or several threads.

    A server that has no time (429 or 503 with ``Retry-After``) is asked again after the time it named, a few times.
    Whatever else goes wrong is raised: :class:`~suwen.service.service_client.ServerError` with the API's ``code`` and
    ``param`` where the server refused, :class:`~suwen.service.service_client.ServerAway` where it does not answer.

    Args:
        url: The server's address, ``http://HOST:PORT``.
        key: A key that ``suwen key new`` made there, where it has keys.
        index: The name or alias of one of its indexes; the default one when not given.
        timeout: Seconds to wait for an answer.
        tries: How often a request is sent at the most.
    """

    def __init__(
        self, url: str, *, key: str | None = None, index: str | None = None, timeout: float = 60.0, tries: int = 5
    ) -> None:
        base = url.rstrip("/") + (f"/indexes/{quote(index, safe='')}" if index else "")
        self._client, self._tries = Client(base, key, timeout), max(1, tries)

    def close(self) -> None:
        """Nothing is held between two requests; here so that either kind of index can be closed."""

    def __exit__(self, *_: object) -> None:
        self.close()

    def _get(self, path: str, **given: object) -> dict[str, Any]:
        query = f"?{urlencode(given)}" if given else ""
        return self._ask(partial(self._client.get, path + query))

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._ask(partial(self._client.post, path, {name: one for name, one in body.items() if one is not None}))

    def _ask(self, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        return patiently(call, tries=self._tries, when=_asked_to_wait)

    # -- documents ----------------------------------------------------------------------------------------------

    def add(
        self, documents: Iterable[Document], *, duplicates: Duplicates = "error", progress: IngestProgress | None = None
    ) -> IngestReport:
        """Insert or replace documents; many are sent as an import, and this waits for its end.

        Args:
            documents: Streamed; memory does not grow with their number.
            duplicates: What to do with an id that comes twice.
            progress: Called with the number of documents dealt with and of passages stored.
        """
        counts = add_documents(self._client, documents, duplicates, progress)
        return IngestReport(encoder="", **counts)

    def delete(self, ids: Sequence[str]) -> int:
        """Remove documents; the number that were there. On return they are gone, durably."""
        return delete_documents(self._client, [ids] if isinstance(ids, str) else ids)

    def document(self, id_: str) -> StoredDocument | None:
        """A whole document, if it is there."""
        try:
            told = self._get(f"/documents/{quote(id_, safe='')}")
        except ServerError as refused:
            if refused.code == "unknown_document":
                return None
            raise
        passages = [_passage(one, told) for one in told["passages"]]
        return StoredDocument(told["id"], told["title"], told["metadata"], told["version"], passages)

    def ids(self, after: str = "", limit: int | None = None) -> Iterator[str]:
        """The ids of documents past ``after``, ascending."""
        left = limit
        while left is None or left > 0:
            page = self._get("/documents", after=after, limit=_IDS if left is None else min(left, _IDS))
            yield from page["ids"]
            if page["next"] is None:
                return
            after, left = page["next"], None if left is None else left - len(page["ids"])

    def stats(self) -> Stats:
        """What the index holds."""
        told = self.info()
        space, about = told["space"], told["index"]
        return Stats(
            dimension=space["dimension"],
            space=space["id"],
            **{name: about[name] for name in Stats._fields if name in about},
        )

    def backlog(self) -> Backlog:
        """How much waits for the space's own document encoder; since when is not told."""
        told = self.info()["freshness"]
        return Backlog(told["waiting_documents"], told["fresh_passages"], None)

    def info(self) -> dict[str, Any]:
        """What ``GET /info`` tells: the index, its space, the pair, freshness, limits."""
        return self._get("/info")

    # -- searching ----------------------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        mode: Mode = "hybrid",
        tier: str | None = None,
        instruction: str | None = None,
        where: Where | None = None,
        offset: int = 0,
        sort: str | None = None,
        facets: Sequence[str] = (),
        per_document: bool = False,
        highlights: bool = False,
        explain: bool = False,
        synonyms: bool = True,
        fold: bool = True,
    ) -> Results:
        """Find the passages that answer a query; see :meth:`suwen.Index.search`."""
        body = {"query": query, "k": k, "mode": mode, "tier": tier, "instruction": instruction, "where": where}
        more = {"offset": offset, "per_document": per_document, "highlights": highlights, "explain": explain}
        wanted = {"sort": sort, "facets": list(facets), "synonyms": synonyms, "all": not fold}
        told = self._post("/search", body | more | wanted)
        return Results(
            told["query"],
            tuple(map(_hit, told["hits"])),
            told["mode"],
            told["tier"],
            told["relevant"],
            told["evidence"],
            told["timings"],
            tuple(told["notes"]),
            {field: _facet(one) for field, one in told.get("facets", {}).items()},
            tuple(told.get("also_searched", ())),
        )

    def search_all(
        self,
        query: str,
        *,
        mode: Mode = "hybrid",
        tier: str | None = None,
        instruction: str | None = None,
        where: Where | None = None,
    ) -> Iterator[Hit]:
        """Every hit of a query, best first, as the index was when this began.

        Raises:
            ServerError: ``cursor_changed`` when documents of the next page were changed or deleted meanwhile.
        """
        body = {"query": query, "k": _PAGE, "mode": mode, "tier": tier, "instruction": instruction, "where": where}
        page = self._post("/cursors", body)
        yield from map(_hit, page["hits"])
        while page["next"] is not None:
            page = self._get(f"/cursors/{page['cursor']}", after=page["next"], k=_PAGE)
            yield from map(_hit, page["hits"])


def _asked_to_wait(away: ServerAway) -> bool:
    # Nobody there, or a damaged index: asking again in a second would change nothing.
    return away.wait is not None


def _passage(told: dict[str, Any], document: dict[str, Any]) -> StoredPassage:
    ordinal = int(told["id"].rpartition("#")[2])
    passage = Passage(document["id"], ordinal, told["text"], told["start"], told["end"], document["title"])
    # Rows are the server's own.
    return StoredPassage(-1, passage, document["metadata"], told["encoder"])


def _facet(told: dict[str, Any]) -> Facet:
    return Facet(tuple(FacetValue(**_made(FacetValue, one)) for one in told["values"]), told["more"], told["missing"])


def _hit(told: dict[str, Any]) -> Hit:
    fields = {name: told[name] for name in Hit.__dataclass_fields__ if name in told}
    marks = [_made(Highlight, one) for one in told["highlights"]]
    for mark in marks:
        mark["terms"] = tuple((start, end) for start, end in mark.get("terms", ()))
    fields["highlights"] = tuple(Highlight(**mark) for mark in marks)
    fields["same"] = tuple(told.get("same", ()))
    fields["title_terms"] = tuple((start, end) for start, end in told.get("title_terms", ()))
    if (why := told.get("explanation")) is not None:
        legs = {name: Leg(**_made(Leg, why[name])) if why[name] else None for name in ("dense", "lexical")}
        more = {**legs, "moved": tuple(why.get("moved", ()))}
        fields["explanation"] = Explanation(**{**_made(Explanation, why), **more})
    return Hit(**fields)


def _made(kind: Any, told: dict[str, Any]) -> dict[str, Any]:
    """What a newer server tells and this client does not know is left out."""
    return {name: told[name] for name in kind.__dataclass_fields__ if name in told}
