"""The ``[serve]`` part of ``suwen.toml``, the environment and the command line, as one record. Opens nothing."""

from __future__ import annotations

import difflib
import hashlib
import os
import tomllib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator

from suwen.errors import SuwenError
from suwen.index.address import is_remote, name_of, shown

PREFIX = "SUWEN_SERVE_"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: The alias of the index that addresses without a name mean.
DEFAULT = "default"
#: What an index or an alias may be called: a part of an address, and of a path.
NAMES = r"\w[\w.-]{0,63}"
Name = Annotated[str, Field(pattern=f"^{NAMES}$")]


class SettingsProblem(SuwenError):
    """The service cannot be run as it is configured."""


class IndexEntry(BaseModel):
    """One of several indexes: its folder, and what is different for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index: Path
    pair: Path | None = None
    read_only: bool | None = None
    books: Path | None = None


class ServeSettings(BaseModel):
    """How one index is served, and others beside it.

    Attributes:
        index: The index, its folder or ``postgresql://…``; today's addresses (``/search`` and so on) mean this one.
        indexes: Further indexes by their names: ``/indexes/NAME/search`` and so on.
        aliases: Other names of indexes. ``default`` is the one that addresses without a name mean.
        folder: A folder of further indexes, each served by its folder's name. Here indexes are restored, and aliases
            that were switched are kept.
        pair: The pair to use; else ``SUWEN_PAIR``, the index's own, the default pair.
        config: The file whose section ``[hyde]`` counts: the one these settings came from, where one was named.
        read_only: Serve without the writer's lock: nothing can be posted or deleted.
        host: The address to listen on; one that others can reach needs keys.
        port: The port; 0 takes a free one.
        keys: The file of keys that ``suwen key new`` writes; without one every caller may do everything.
        hosts: The names the service may be asked by (the Host header); any when empty.
        cors_origins: Exact origins whose pages may call the API from a browser.
        reviews: A jury folder whose review pages are mounted.
        books: The folder that books were indexed from: hits open them at their page. Books that are imported are kept
            in its folder ``imported``.
        document_encoder: A full pair (or ``own``, the pair itself) that encodes posted documents again, in process.
        base: The base of the document encoder's adapter; ``SUWEN_BASE`` by default.
        log_queries: Write the text of queries to the log.
        log_addresses: Write the addresses of clients to the log.
        workers: Processes that answer: one that writes and reads, the others only read.
        readers: Threads of each that search; as many as the machine has cores when 0.
        concurrency: The most searches and other reads in work or waiting; the next one is turned away with 429.
        encode_concurrency: The same for batches of texts to encode or to rerank.
        write_concurrency: The same for changes of the index.
        key_concurrency: The most places of each kind that one key may have; three quarters of them when 0, all where it
            is the only key.
        connections: The most open connections; for a further one the address that has the most loses an idle one.
        address_connections: The most open connections of one address; half of all when 0.
        seconds: The time one request may take.
        slow_seconds: The time a client may take to send a request's head, and its body (longer for a long one).
        stop_seconds: The time a stop takes at the most, whatever is under way; half of it finishes what was accepted.
        stuck_seconds: A write that takes longer than this is told by ``/readyz`` and the log.
        body_bytes: The longest body of a request that carries texts or vectors.
        body_elements: The most values in such a body.
        query_bytes: The longest body of any other request.
        query_elements: The most values in it.
        import_bytes: The longest import.
        imports: The most imports that wait.
        depth: The deepest nesting of a JSON body.
        batch_documents: The most documents of one request.
        batch_passages: The most passages of one request; what has more goes through an import.
        embedding_inputs: The most texts of one embedding request.
        rerank_documents: The most documents of one rerank request.
        text_characters: The longest text of one document.
        query_characters: The longest query.
        most_hits: The largest ``k``.
        lease_seconds: How long a worker may keep a batch before it is given to another.
        lease_documents: The most documents of one lease.
        cursor_hits: The most hits of a cursor.
        cursor_seconds: How long a cursor is kept after it was last used.
        cursors: The most cursors kept at once; a further one ends the one that was not used for longest.
        snapshot_bytes: The longest snapshot that is restored.
        check_seconds: The time between two checks of every file of an index, in the background; 0 for none.
        traces: Tell OpenTelemetry of each request, by what its own settings say; needs the extra ``otel``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    index: Path
    indexes: dict[Name, IndexEntry] = Field(default_factory=dict)
    aliases: dict[Name, Name] = Field(default_factory=dict)
    folder: Path | None = None
    pair: Path | None = None
    config: Path | None = None
    read_only: bool = False
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    keys: Path | None = None
    hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    reviews: Path | None = None
    books: Path | None = None
    document_encoder: str | None = None
    base: str | None = None
    log_queries: bool = False
    log_addresses: bool = False
    workers: int = Field(default=1, ge=1, le=64)
    readers: int = Field(default=0, ge=0, le=256)
    concurrency: int = Field(default=32, ge=1, le=10_000)
    encode_concurrency: int = Field(default=16, ge=1, le=10_000)
    write_concurrency: int = Field(default=16, ge=1, le=10_000)
    key_concurrency: int = Field(default=0, ge=0, le=10_000)
    connections: int = Field(default=1000, ge=1)
    address_connections: int = Field(default=0, ge=0)
    seconds: float = Field(default=30.0, gt=0)
    slow_seconds: float = Field(default=20.0, gt=0)
    stop_seconds: float = Field(default=30.0, gt=0)
    stuck_seconds: float = Field(default=120.0, gt=0)
    body_bytes: int = Field(default=16 * 2**20, ge=1024)
    body_elements: int = Field(default=30_000, ge=100)
    query_bytes: int = Field(default=2**20, ge=1024)
    query_elements: int = Field(default=20_000, ge=100)
    import_bytes: int = Field(default=256 * 2**20, ge=1024)
    imports: int = Field(default=16, ge=1, le=1000)
    depth: int = Field(default=64, ge=4)
    batch_documents: int = Field(default=256, ge=1, le=10_000)
    batch_passages: int = Field(default=256, ge=1, le=10_000)
    embedding_inputs: int = Field(default=256, ge=1)
    rerank_documents: int = Field(default=1000, ge=1)
    text_characters: int = Field(default=2_000_000, ge=1)
    query_characters: int = Field(default=8192, ge=1)
    most_hits: int = Field(default=1000, ge=1, le=10_000)
    lease_seconds: float = Field(default=120.0, gt=0)
    lease_documents: int = Field(default=64, ge=1)
    cursor_hits: int = Field(default=100_000, ge=1, le=1_000_000)
    cursor_seconds: float = Field(default=300.0, gt=0)
    cursors: int = Field(default=16, ge=1, le=1000)
    snapshot_bytes: int = Field(default=16 * 2**30, ge=1024)
    check_seconds: float = Field(default=86_400.0, ge=0)
    traces: bool = False

    @field_validator("indexes", mode="before")
    @classmethod
    def _are_entries(cls, value: Any) -> Any:
        """A name may have a folder, or a table with its folder as ``index``."""
        if not isinstance(value, Mapping):
            return value
        return {name: {"index": one} if isinstance(one, str | Path) else one for name, one in value.items()}

    @model_validator(mode="after")
    def _are_apart(self) -> ServeSettings:
        names = {self.name, *self.indexes}
        if self.name in self.indexes:
            raise ValueError(f"indexes has {self.name!r}, which is the name of the folder of index: give it another")
        for alias, meant in self.aliases.items():
            if alias in names and alias != DEFAULT:
                raise ValueError(f"the alias {alias!r} is the name of an index: choose another")
            if meant not in names and self.folder is None:
                raise ValueError(f"the alias {alias!r} means {meant!r}, which is no index: there are {sorted(names)}")
        return self

    def of(self, entry: IndexEntry) -> ServeSettings:
        """The settings of another index: as these, but for what its entry says."""
        read_only = self.read_only if entry.read_only is None else entry.read_only
        own: dict[str, Any] = {"index": entry.index, "pair": entry.pair, "read_only": read_only, "books": entry.books}
        copy = self.model_copy(update=own | {"indexes": {}, "aliases": {}, "folder": None})
        # Worked out once and kept: that of the other folder must not come along.
        copy.__dict__.pop("name", None)
        return copy

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if not origin.startswith(("http://", "https://")) or origin.rstrip("/").count("/") != 2:
                raise ValueError(f"{origin!r} is not an origin: write https://HOST or https://HOST:PORT, no '*'")
        return tuple(origin.rstrip("/") for origin in value)

    @cached_property
    def name(self) -> str:
        """The index's name, as requests may give it: that of its folder."""
        return name_of(self.index)

    @property
    def spool(self) -> Path:
        """Where imports wait: in the index folder, or in the user's own for an index that is not a folder."""
        if not is_remote(self.index):
            return self.index / "imports"
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        return state / "suwen" / hashlib.sha256(shown(self.index).encode()).hexdigest()[:16] / "imports"

    @property
    def public(self) -> bool:
        """Whether others than this machine can reach the address."""
        return self.host not in LOOPBACK and not self.host.startswith("127.")

    def share(self, places: int, *, alone: bool = False) -> int:
        """How many places one key may have; the rest is for the others, where there are any."""
        return self.key_concurrency or (places if alone else max(1, places * 3 // 4))

    @property
    def threads(self) -> int:
        """How many threads search."""
        return self.readers or max(2, os.cpu_count() or 2)


def load_settings(
    index: Path | None,
    config: Path | None = None,
    given: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> ServeSettings:
    """Put the settings together: ``[serve]`` of the file, then ``SUWEN_SERVE_*``, then what was given.

    Args:
        index: The index folder; may come from the file or the environment instead.
        config: The file; else ``SUWEN_CONFIG``, else ``suwen.toml`` in the current folder where there is one.
        given: Settings of the command line; those that are None were not given.
        environment: The process's own unless given.
    """
    environment = os.environ if environment is None else environment
    file = config or (Path(environment["SUWEN_CONFIG"]) if environment.get("SUWEN_CONFIG") else None)
    values = _from_file(file) | _from_environment(environment)
    values |= {name: value for name, value in (given or {}).items() if value is not None}
    if index is not None:
        values["index"] = index
    if file is not None:
        values["config"] = file.absolute()
    if "index" not in values:
        raise SettingsProblem(f"no index is named: give its folder, index in [serve], or {PREFIX}INDEX")
    try:
        return ServeSettings.model_validate(values)
    except ValidationError as problem:
        raise SettingsProblem(_described(problem)) from None


def _from_file(file: Path | None) -> dict[str, Any]:
    """The file's ``[serve]``, its paths taken from the file's own folder."""
    named = file is not None
    file = file or Path("suwen.toml")
    try:
        section = tomllib.loads(file.read_text(encoding="utf-8")).get("serve", {})
    except FileNotFoundError:
        if named:
            raise SettingsProblem(f"there is no {file}: name a configuration file that is there") from None
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise SettingsProblem(f"{file} cannot be read as TOML: {problem}") from None
    if not isinstance(section, dict):
        raise SettingsProblem(f"{file}: serve is not a section: write [serve] and its settings under it")
    section = _with_paths(section, file.parent)
    if isinstance(section.get("indexes"), dict):
        entries = {name: {"index": one} if isinstance(one, str) else one for name, one in section["indexes"].items()}
        section["indexes"] = {
            name: _with_paths(one, file.parent) if isinstance(one, dict) else one for name, one in entries.items()
        }
    return section


def _with_paths(section: dict[str, Any], start: Path) -> dict[str, Any]:
    names = {
        name for name in ("index", "pair", "keys", "reviews", "folder", "books") if isinstance(section.get(name), str)
    }
    names -= {"index"} if is_remote(str(section.get("index"))) else set()
    return section | {name: start / section[name] for name in names}


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for variable, text in environment.items():
        if not variable.startswith(PREFIX):
            continue
        name = variable.removeprefix(PREFIX).lower()
        field = ServeSettings.model_fields.get(name)
        if field is None:
            raise SettingsProblem(f"{variable} is no setting; {_nearest(name, upper=True)}")
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if name in ("indexes", "aliases"):
            values[name] = _named(variable, parts)
            continue
        lists = field.annotation == tuple[str, ...]
        try:
            values[name] = TypeAdapter[Any](field.annotation or str).validate_python(parts if lists else text)
        except ValidationError as problem:
            raise SettingsProblem(f"{variable} is {text!r}: {problem.errors()[0]['msg']}") from None
    return values


def _named(variable: str, parts: list[str]) -> dict[str, str]:
    pairs = [part.partition("=") for part in parts]
    if not all(equals and value for _, equals, value in pairs):
        raise SettingsProblem(f"{variable} is {', '.join(parts)!r}: write NAME=VALUE, separated by commas")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _nearest(name: str, upper: bool = False) -> str:
    names = list(ServeSettings.model_fields)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    shown = [PREFIX + one.upper() if upper else one for one in (close or names)]
    return f"did you mean {shown[0]}?" if close else f"there are {', '.join(shown)}"


def _described(problem: ValidationError) -> str:
    first = problem.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else "serve"
    if first["type"] == "extra_forbidden":
        return f"[serve] has no setting {name!r}; {_nearest(name)}"
    said = first["msg"].removeprefix("Value error, ")
    return f"[serve] {said}" if not first["loc"] else f"the setting {name} is {first['input']!r}: {said}"
