"""Verbs of the service: ``serve``, and ``key`` for who may use it. The service itself needs the extra ``serve``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from suwen.cli.options import Json, PairFolder
from suwen.cli.output import print_json, print_table, say, show
from suwen.errors import SuwenError

key_app = typer.Typer(name="key", help="Keys of the service: who may do what, until when.", no_args_is_help=True)
KeyFile = Annotated[Path, typer.Option("--file", help="The file of keys; `new` makes it when it is not there.")]


def serve(
    index: Annotated[
        Path | None, typer.Argument(metavar="INDEX", help="The index: its folder, or postgresql://…")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="The address to listen on [127.0.0.1].")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="The port [8000]; 0: a free one.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="A file with a [serve] section [suwen.toml].")] = None,
    keys: Annotated[Path | None, typer.Option("--keys", help="The file of keys that `suwen key new` wrote.")] = None,
    pair: PairFolder = None,
    read_only: Annotated[
        bool | None, typer.Option("--read-only", help="Only read: another process may write the index.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes that answer searches [1]; one of them writes.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="The most requests in work or waiting [32].")
    ] = None,
    document_encoder: Annotated[
        str | None,
        typer.Option(
            "--document-encoder", help="A full pair (or `own`) that encodes posted documents again, in process."
        ),
    ] = None,
    reviews: Annotated[Path | None, typer.Option("--reviews", help="A jury folder whose review pages to show.")] = None,
    books: Annotated[
        Path | None, typer.Option("--books", help="The folder books were indexed from: hits open them at their page.")
    ] = None,
    log_queries: Annotated[
        bool | None, typer.Option("--log-queries", help="Write the text of queries to the log.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the address as one JSON document.")] = False,
) -> None:
    """Serve an index over HTTP, with a web page: search, and documents that are found at once.

    Settings come from `[serve]` in suwen.toml, then `SUWEN_SERVE_…` variables, then these options. Logs are lines of
    JSON on standard error.

    Example: `suwen serve my-index --port 8000`
    """
    _needs_extra()
    from suwen.index.address import shown
    from suwen.service.serve_settings import load_settings

    given: dict[str, Any] = {"host": host, "port": port, "keys": keys, "pair": pair, "read_only": read_only}
    given |= {"workers": workers, "concurrency": concurrency, "document_encoder": document_encoder}
    given |= {"reviews": reviews, "books": books, "log_queries": log_queries}
    settings = load_settings(index, config, given)
    # After what the user may have to set right: it is slow to load.
    from suwen.service.request_log import log_to_stderr
    from suwen.service.server import serve as run

    log_to_stderr()
    run(settings, lambda address: _tell(shown(settings.index), address, json))


@key_app.command("new")
def key_new(
    name: Annotated[str, typer.Option("--name", help="Who will have it; stands in the log.")],
    role: Annotated[
        Literal["read", "write", "worker"],
        typer.Option("--role", help="What it may do; `write` includes the others, `worker` is for `suwen worker`."),
    ] = "read",
    expires: Annotated[
        str | None, typer.Option("--expires", help="When it ends: 90d, 2027-01-31 or 2027-01-31T12:00 (UTC) [never].")
    ] = None,
    index: Annotated[
        list[str] | None,
        typer.Option("--index", help="An index it is for, by name or alias; give it again for more [all]."),
    ] = None,
    file: KeyFile = Path("keys.toml"),
    json: Json = False,
) -> None:
    """Make a key and print it, once: the file keeps only its hash. A server that uses the file knows it at once.

    Example: `suwen key new --name ward-3 --role read --expires 90d --file keys.toml`
    """
    _needs_extra()
    from suwen.service.keys import new_key

    key = new_key(file, name, role, expires, index or ())
    if json:
        print_json({"key": key, "name": name, "role": role, "file": str(file)})
    else:
        typer.echo(key)
        say(f"this is the only time the key is shown; {file} holds its hash. A server with this file lets it in now")


@key_app.command("list")
def key_list(file: KeyFile = Path("keys.toml"), json: Json = False) -> None:
    """Show whose keys there are, what each may do, and until when.

    Example: `suwen key list --file keys.toml`
    """
    _needs_extra()
    from suwen.service.keys import read_keys

    keys = [
        {
            "name": key.name,
            "role": key.role,
            "expires": key.expires or None,
            "expired": key.expired(),
            "indexes": list(key.indexes) or None,
        }
        for key in read_keys(file)
    ]
    if json:
        print_json({"file": str(file), "keys": keys})
        return
    rows = [
        [str(key.name), str(key.role), _until(key.expires or None, key.expired()), ", ".join(key.indexes) or "all"]
        for key in read_keys(file)
    ]
    print_table(f"keys of {file}", ("name", "role", "until", "indexes"), rows, words=4)


@key_app.command("revoke")
def key_revoke(
    name: Annotated[str, typer.Option("--name", help="Whose key to withdraw.")],
    file: KeyFile = Path("keys.toml"),
    json: Json = False,
) -> None:
    """Withdraw a key: servers that use the file refuse it within a second, without a restart.

    Example: `suwen key revoke --name ward-3 --file keys.toml`
    """
    _needs_extra()
    from suwen.service.keys import revoke_key

    key = revoke_key(file, name)
    show({"revoked": key.name, "role": key.role, "file": str(file)}, f"the key {key.name!r} is withdrawn", json=json)


def _until(expires: object, expired: bool) -> str:
    return "for good" if expires is None else f"{expires} (expired)" if expired else str(expires)


def _tell(index: str, address: str, json: bool) -> None:
    if json:
        print_json({"index": index, "address": address})
        # A pipe would keep it until the server ends.
        sys.stdout.flush()
    else:
        say(f"serving {index} on {address}")


def _needs_extra() -> None:
    needed = ("fastapi", "uvicorn", "httptools", "orjson", "prometheus_client")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise SuwenError(f"the service needs {', '.join(missing)}: install it with pip install 'suwen[serve]'")


VERBS = (serve,)
