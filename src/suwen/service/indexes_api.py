"""``/indexes`` and ``/aliases``: which there are, taking a rebuilt index in, switching to it; snapshot and restore."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi import Path as InPath
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from suwen.index.engine import IndexProblem, need
from suwen.retrieve.retriever import Index
from suwen.service.answers import answered, json_answer
from suwen.service.direct_route import DirectRoute
from suwen.service.holder import Holder
from suwen.service.imports_api import receive_to
from suwen.service.indexes import Indexes
from suwen.service.keys import Key, needs
from suwen.service.places import Places
from suwen.service.problems import as_problem, documented, error_body
from suwen.service.request_checks import Asked
from suwen.service.request_log import note
from suwen.service.restoring import Restoring
from suwen.service.served_index import holder_of
from suwen.service.snapshot_files import Packed

Name = Annotated[str, InPath(description="The index's name.")]
Alias = Annotated[str, InPath(description="The alias.")]
_ALIAS = {"name": "alias", "in": "path", "required": True, "schema": {"type": "string"}, "description": "The alias."}
_LEFT = ".snapshot-"
_ONE = {"name": "drugs-2", "state": "ready", "aliases": ["drugs"], "named": False, "error": None}
_CHANGES = ("fixed_indexes", "index_exists", "index_in_use", "too_many")


class IndexShape(BaseModel):
    """One of the indexes."""

    name: str
    state: Literal["opening", "ready", "failed", "restoring"]
    aliases: list[str] = Field(description="Names that mean it now; `default` is meant by addresses without a name.")
    named: bool = Field(description="Whether the settings name it: then it can neither be deleted nor replaced.")
    error: dict[str, Any] | None = Field(description="What is wrong with it, where something is.")


class IndexesAnswer(BaseModel):
    """The indexes that the key may use."""

    indexes: list[IndexShape]


class AliasesAnswer(BaseModel):
    """What each alias means."""

    aliases: dict[str, str]


class SwitchAnswer(BaseModel):
    """What an alias means from now on."""

    alias: str
    index: str
    before: str | None


class DroppedAnswer(BaseModel):
    """What is no more."""

    deleted: str


class Switch(Asked):
    """The index that an alias is to mean."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"index": "drugs-2"}]})

    index: str


def routes(indexes: Indexes, restoring: Restoring) -> APIRouter:
    """The endpoints that look at, add, switch and remove indexes."""
    router = APIRouter(route_class=DirectRoute, tags=["indexes"], default_response_class=Response)
    _add_looking(router, indexes, restoring)
    _add_changing(router, indexes, restoring)
    _add_aliases(router, indexes)
    _add_copies(router, indexes, restoring)
    return router


def _add_looking(router: APIRouter, indexes: Indexes, restoring: Restoring) -> None:
    @router.get(
        "/indexes",
        dependencies=[Depends(needs("read"))],
        responses=answered(IndexesAnswer, "The indexes.", {"indexes": [_ONE]}) | documented(),
        summary="List indexes",
    )
    async def list_indexes(request: Request) -> Response:
        """Every index that the key may use, and those that are being restored."""
        key: Key | None = request.scope["suwen.key"]
        shown = [about(indexes, one.holder) for one in indexes]
        shown += [_restored(restoring, name) for name in sorted({*restoring.under_way, *restoring.failed})]
        if key is not None and key.indexes:
            shown = [one for one in shown if {one["name"], *one["aliases"]} & set(key.indexes)]
        return json_answer({"indexes": shown})

    @router.get(
        "/indexes/{name}",
        dependencies=[Depends(needs("read", everywhere=True))],
        responses=answered(IndexShape, "The index.", _ONE) | documented(),
        summary="Look at an index",
    )
    async def look(name: Name, request: Request) -> Response:
        """How an index stands, by its name or an alias."""
        if name in restoring.under_way or name in restoring.failed:
            return json_answer(_restored(restoring, name))
        return json_answer(about(indexes, indexes.find(name).holder))


def about(indexes: Indexes, holder: Holder) -> dict[str, Any]:
    """An index as the API tells it."""
    problem = holder.trouble() or (as_problem(holder.failure) if holder.failure is not None else None)
    state = "failed" if holder.failure is not None else "ready" if holder.ready else "opening"
    return {
        "name": holder.name,
        "state": state,
        "aliases": sorted(indexes.called(holder.name) - {holder.name}),
        "named": holder.name in indexes.named,
        "error": None if problem is None else error_body(problem, "")["error"],
    }


def _restored(restoring: Restoring, name: str) -> dict[str, Any]:
    problem = restoring.failed.get(name)
    return {
        "name": name,
        "state": "restoring" if name in restoring.under_way else "failed",
        "aliases": [],
        "named": False,
        "error": None if problem is None else error_body(problem, "")["error"],
    }


def _add_changing(router: APIRouter, indexes: Indexes, restoring: Restoring) -> None:
    everywhere = [Depends(needs("write", everywhere=True))]

    @router.put(
        "/indexes/{name}",
        dependencies=everywhere,
        responses=answered(IndexShape, "It is being opened.", _ONE | {"state": "opening"}) | documented(*_CHANGES),
        summary="Serve an index of the folder",
    )
    async def put(name: Name) -> Response:
        """Serve an index that was made in the server's folder since it was started; look at it until it is ready."""
        return json_answer(about(indexes, (await indexes.open(name)).holder))

    @router.delete(
        "/indexes/{name}",
        dependencies=everywhere,
        responses=answered(DroppedAnswer, "It is gone, and so are its files.", {"deleted": "drugs-1"})
        | documented(*_CHANGES),
        summary="Delete an index",
    )
    async def delete(name: Name) -> Response:
        """Close an index of the folder when the last request to it is answered, and remove its files."""
        if name in restoring.failed:
            del restoring.failed[name]
        else:
            await indexes.drop(name)
        return json_answer({"deleted": name})


def _add_aliases(router: APIRouter, indexes: Indexes) -> None:
    everywhere = [Depends(needs("write", everywhere=True))]

    @router.get(
        "/aliases",
        dependencies=[Depends(needs("read", everywhere=True))],
        responses=answered(AliasesAnswer, "The aliases.", {"aliases": {"default": "drugs-1"}}) | documented(),
        summary="List aliases",
    )
    async def list_aliases() -> Response:
        """What each alias means; `default` is meant by addresses without a name."""
        return json_answer({"aliases": indexes.aliases})

    @router.put(
        "/aliases/{alias}",
        dependencies=everywhere,
        responses=answered(SwitchAnswer, "Done.", {"alias": "drugs", "index": "drugs-2", "before": "drugs-1"})
        | documented(*_CHANGES, "writer_stuck"),
        openapi_extra={"parameters": [_ALIAS]},
        summary="Switch an alias",
    )
    async def switch(asked: Switch, request: Request) -> Response:
        """Let an alias mean an index that is ready: from one request to the next, and after a restart too."""
        alias = request.path_params["alias"]
        before = await indexes.switch(alias, asked.index)
        return json_answer({"alias": alias, "index": asked.index, "before": before})

    @router.delete(
        "/aliases/{alias}",
        dependencies=everywhere,
        responses=answered(DroppedAnswer, "It means nothing any more.", {"deleted": "drugs"}) | documented(*_CHANGES),
        summary="Delete an alias",
    )
    async def forget(alias: Alias) -> Response:
        """Forget an alias; the index that it meant stays."""
        await indexes.forget_alias(alias)
        return json_answer({"deleted": alias})


def _add_copies(router: APIRouter, indexes: Indexes, restoring: Restoring) -> None:
    tar = {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}}

    @router.get(
        "/snapshot",
        dependencies=[Depends(needs("write"))],
        responses={200: {"description": "A tar of the backup.", "content": tar}, **documented("disk_full")},
        summary="Copy an index",
    )
    async def snapshot(request: Request) -> Any:
        """A consistent copy of the index as it is now, for /indexes/NAME/restore here or on another server."""
        holder = holder_of(request)
        places = holder.places["copy"]
        asker = places.take()
        folder = None
        try:
            folder = await asyncio.to_thread(_make_room, holder)
            await holder.read(lambda index: _back_up(index, folder / "backup"), "snapshot", "copy", taken=True)
            packed = await asyncio.to_thread(Packed, folder / "backup")
        except BaseException:
            places.give(asker)
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        note(request, bytes=packed.length)
        return _Sending(packed, f"{holder.name}.tar", folder, places, asker)

    @router.post(
        "/indexes/{name}/restore",
        dependencies=[Depends(needs("write", everywhere=True))],
        responses=answered(IndexShape, "Taken; its search files are being made.", _ONE | {"state": "restoring"})
        | documented(*_CHANGES, "bad_snapshot", "disk_full"),
        openapi_extra={"requestBody": {"required": True, "content": tar}},
        summary="Restore an index",
    )
    async def restore(name: Name, request: Request) -> Response:
        """Make a new index of a snapshot. Once the answer comes no kill loses it; look at it until it is ready."""
        places = indexes.shared.places["copy"]
        asker = places.take()
        try:
            await _received(request, indexes, restoring, name)
        finally:
            places.give(asker)
        return json_answer(_restored(restoring, name) | {"state": "restoring"})


async def _received(request: Request, indexes: Indexes, restoring: Restoring, name: str) -> None:
    file = restoring.coming(name)
    try:
        with await asyncio.to_thread(file.open, "wb") as stream:
            settings = indexes.settings
            length = await receive_to(stream, request, settings.snapshot_bytes, settings.slow_seconds)
            await asyncio.to_thread(os.fsync, stream.fileno())
        note(request, bytes=length)
        await restoring.take(file, name)
    except OSError as problem:
        # A full disk is told as such; whatever else it is, the log has it.
        raise IndexProblem(f"the snapshot could not be written to {file} ({problem})") from problem
    finally:
        file.unlink(missing_ok=True)


def _make_room(holder: Holder) -> Path:
    """A folder for a copy of the index, on its own disk where that may be written to; what a kill left is swept."""
    beside = None if holder.settings.read_only else holder.settings.index
    for left in beside.glob(f"{_LEFT}*") if beside else ():
        shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=_LEFT, dir=beside))


def _back_up(index: Index, target: Path) -> None:
    need(index.engine, "backup")
    index.engine.backup(target)


class _Sending(Response):
    """Sends a snapshot, and cleans up after it however that ends."""

    def __init__(self, packed: Packed, name: str, folder: Path, places: Places, asker: str) -> None:
        told = {"Content-Length": str(packed.length), "Content-Type": "application/x-tar"}
        told["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(name)}"
        super().__init__(None, 200, told)
        self.raw_headers = [(name.lower().encode(), value.encode()) for name, value in told.items()]
        self._packed, self._folder, self._places, self._asker = packed, folder, places, asker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, a part at a time."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            parts = self._packed.parts()
            part = next(parts)
            while (following := await asyncio.to_thread(next, parts, None)) is not None:
                await send({"type": "http.response.body", "body": part, "more_body": True})
                part = following
        finally:
            # Before the last part goes: who has the whole of it may ask for the next at once.
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
            self._places.give(self._asker)
        await send({"type": "http.response.body", "body": part})
