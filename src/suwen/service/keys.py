"""Keys of the API: making, keeping, withdrawing and knowing them, and what each role may do. Kept as hashes alone."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import threading
import time
import tomllib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from starlette.requests import Request

from suwen.durable import FileLock, Locked, replacing
from suwen.service.problems import Problem
from suwen.service.serve_settings import SettingsProblem

log = logging.getLogger("suwen.service")
Role = Literal["read", "write", "worker"]
#: What a key of each role may do. A worker's machine may be anybody's: it sees what it encodes, and searches nothing.
_MAY: dict[Role, frozenset[Role]] = {
    "read": frozenset({"read"}),
    "worker": frozenset({"worker"}),
    "write": frozenset({"read", "write", "worker"}),
}
_NAME = re.compile(r"[\w][\w.@-]{0,63}")
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="suwen"'}
#: Letters of a key that its record shows: by them it is found among any number of others, with one hash.
_SHOWN = len("suwen_") + 8
#: Seconds between two looks at whether the file has changed, and the size up to which it is read where it is.
_LOOK, _ON_THE_SPOT = 1.0, 16 * 1024


class Key(NamedTuple):
    """What is known of a key: who has it and what it may do until when, not the key itself.

    Attributes:
        name: Who has it.
        role: What it may do.
        salt: Of the hash.
        hash: Of the key.
        shown: How the key begins; empty for a key that an older suwen made.
        expires: The moment it ends, in UTC and as ISO 8601; empty for never.
        indexes: The names or aliases of the indexes it is for; empty for all.
    """

    name: str
    role: Role
    salt: str
    hash: str
    shown: str = ""
    expires: str = ""
    indexes: tuple[str, ...] = ()

    def matches(self, presented: bytes) -> bool:
        """Whether this is the key, in the same time whatever was presented."""
        return hmac.compare_digest(_hashed(self.salt, presented), self.hash)

    def expired(self, now: datetime | None = None) -> bool:
        """Whether its time is over."""
        return bool(self.expires) and datetime.fromisoformat(self.expires) <= (now or datetime.now(UTC))


class Keys:
    """The keys of a server; without a file of them, every caller may do everything.

    The file is looked at again when it changes: a key that was made or withdrawn counts within a second. A file that
    cannot be read any more changes nothing, and is told in the log.

    Args:
        file: The file of keys.
        clock: Seconds that never go back.
    """

    def __init__(self, file: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._clock = file, clock
        self._mark, self._looked = _mark(file), clock()
        self._known = () if file is None else read_keys(file)
        if file is not None and not self._known:
            raise SettingsProblem(f"{file} holds no key: make one with 'suwen key new --file {file}'")
        self._sort()

    @property
    def needed(self) -> bool:
        """Whether a caller needs one. That of a server whose last key was withdrawn does too."""
        return self._file is not None

    @property
    def single(self) -> bool:
        """Whether there is one key and no other."""
        return len(self._known) == 1

    def find(self, presented: bytes | None) -> Key | None:
        """The key that was presented, if it is one of these and has not expired."""
        self._look_again()
        if not presented:
            return None
        candidates = (*self._by_start.get(presented[:_SHOWN], ()), *self._by_start.get(b"", ()))
        # All are compared, also after a match: the time must not tell which one it was.
        matching = [key for key in candidates if key.matches(presented)]
        return matching[0] if matching and not matching[0].expired() else None

    def _look_again(self) -> None:
        if self._file is None or self._clock() - self._looked < _LOOK:
            return
        self._looked = self._clock()
        mark = _mark(self._file)
        if mark == self._mark:
            return
        self._mark = mark
        if len(mark) and mark[1] > _ON_THE_SPOT:
            # A thousand keys take a tenth of a second to read, in which nobody would be answered.
            threading.Thread(target=self._read_again, args=(self._file,), daemon=True).start()
        else:
            self._read_again(self._file)

    def _read_again(self, file: Path) -> None:
        try:
            self._known = read_keys(file)
        except SettingsProblem as problem:
            log.error("the keys stay as they were: %s", problem)
            return
        self._sort()
        log.info("the keys were read again: there are %d", len(self._known))

    def _sort(self) -> None:
        by_start: dict[bytes, list[Key]] = {}
        for key in self._known:
            by_start.setdefault(key.shown.encode(), []).append(key)
        self._by_start = by_start


def _mark(file: Path | None) -> tuple[int, ...]:
    """What changes when a file does."""
    try:
        about = None if file is None else file.stat()
    except OSError:
        about = None
    return () if about is None else (about.st_mtime_ns, about.st_size, about.st_ino)


def read_keys(file: Path) -> tuple[Key, ...]:
    """The keys of a file.

    Raises:
        SettingsProblem: It is not a file of keys.
    """
    try:
        records = tomllib.loads(file.read_text(encoding="utf-8")).get("keys", [])
        keys = tuple(Key(**{**record, "indexes": tuple(record.get("indexes", ()))}) for record in records)
    except FileNotFoundError:
        raise SettingsProblem(f"there is no {file}: make a key with 'suwen key new --file {file}'") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, TypeError, AttributeError) as problem:
        raise SettingsProblem(
            f"{file} is not a file of keys ({problem}): make one with 'suwen key new --file {file}'"
        ) from None
    for key in keys:
        if not _sound(key):
            raise SettingsProblem(f"{file}: the key {key.name!r} is damaged: drop it and make it again")
    return keys


def _sound(key: Key) -> bool:
    try:
        key.expired()
    except (ValueError, TypeError):
        return False
    texts = all(isinstance(value, str) for value in (*key[:-1], *key.indexes))
    return texts and key.role in get_args(Role) and bool(re.fullmatch("[0-9a-f]{64}", key.hash))


def _hashed(salt: str, key: bytes) -> str:
    # A key is 256 random bits: nothing can be guessed, so a slow hash would only slow every request.
    return hashlib.sha256(salt.encode() + key).hexdigest()


# -- making and withdrawing -----------------------------------------------------------------------------------------


def new_key(file: Path, name: str, role: Role, expires: str | None = None, indexes: Sequence[str] = ()) -> str:
    """Make a key and add it to a file of keys; the key itself is given back and kept nowhere.

    Args:
        file: Made when it is not there.
        name: Who will have it.
        role: What it may do.
        expires: When it ends: ``90d`` for so many days from now, or a date or moment in ISO 8601; never by default.
        indexes: The names or aliases of the indexes it is for; all by default.
    """
    if not _NAME.fullmatch(name):
        raise SettingsProblem(f"{name!r} cannot name a key: use letters, digits, '.', '@', '_' and '-', at most 64")
    key, salt = f"suwen_{secrets.token_urlsafe(32)}", secrets.token_hex(16)
    ends = "" if expires is None else moment(expires).isoformat()
    with _changing(file) as keys:
        if any(one.name == name for one in keys):
            raise SettingsProblem(
                f"{file} has a key named {name!r}: choose another name, or withdraw that one with 'suwen key revoke'"
            )
        keys.append(Key(name, role, salt, _hashed(salt, key.encode()), key[:_SHOWN], ends, tuple(indexes)))
    return key


def revoke_key(file: Path, name: str) -> Key:
    """Take a key out of a file of keys; servers that use the file refuse it within a second."""
    read_keys(file)  # A file that is not there is not made.
    with _changing(file) as keys:
        found = [key for key in keys if key.name == name]
        if not found:
            there = ", ".join(key.name for key in keys) or "none"
            raise SettingsProblem(f"{file} has no key named {name!r}; there are: {there}")
        keys[:] = [key for key in keys if key.name != name]
    return found[0]


def moment(text: str, now: datetime | None = None) -> datetime:
    """When a key ends, in UTC: ``90d``, ``2027-01-31`` (the end of that day) or ``2027-01-31T12:00``.

    >>> moment("2027-01-31").isoformat()
    '2027-02-01T00:00:00+00:00'
    """
    now = now or datetime.now(UTC)
    try:
        if re.fullmatch(r"\d{1,5}d", text):
            ends = now + timedelta(days=int(text[:-1]))
        elif re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            ends = datetime.combine(date.fromisoformat(text) + timedelta(days=1), datetime.min.time(), UTC)
        else:
            ends = datetime.fromisoformat(text)
            ends = ends.astimezone(UTC) if ends.tzinfo else ends.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise SettingsProblem(f"{text!r} is no time to end at: write 90d, 2027-01-31 or 2027-01-31T12:00") from None
    if ends <= now:
        raise SettingsProblem(f"{text!r} is past: choose a later end")
    return ends.replace(microsecond=0)


@contextmanager
def _changing(file: Path) -> Iterator[list[Key]]:
    """The keys of a file, to change; what is left of them at the end is written, whole or not at all."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(file.with_name(f".{file.name}.lock"))
        lock.acquire(wait=10.0)
    except (OSError, Locked) as problem:
        raise SettingsProblem(f"{file} cannot be written ({problem}): choose another --file") from None
    try:
        keys = list(read_keys(file)) if file.exists() and file.read_bytes().strip() else []
        yield keys
        with replacing(file) as stream:
            os.fchmod(stream.fileno(), 0o600)  # nobody else's to read
            stream.write("\n".join(map(_written, keys)).encode())
    except OSError as problem:
        raise SettingsProblem(f"{file} cannot be written ({problem.strerror}): choose another --file") from problem
    finally:
        lock.release()


def _written(key: Key) -> str:
    fields = {
        name: value for name, value in key._asdict().items() if value or name not in ("shown", "expires", "indexes")
    }
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    return "\n".join(["[[keys]]", *lines, ""])


# -- asking for them ------------------------------------------------------------------------------------------------


def presented_key(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The key of a request: ``Authorization: Bearer KEY``, or ``X-API-Key: KEY``."""
    other = None
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip()
        if name == b"x-api-key":
            other = value.strip()
    return other


def needs(role: Role, *, everywhere: bool = False) -> Callable[[Request], Awaitable[None]]:
    """A dependency that lets a request through only with a key of a role that may do this.

    ``Depends(needs("read"))``; ``everywhere``, with a key for all indexes. Who asks was found out on the way in,
    see :class:`suwen.service.request_intake.Intake`.
    """

    async def check(request: Request) -> None:
        keys: Keys = request.scope["suwen.keys"]
        if keys.needed:
            key: Key | None = request.scope["suwen.key"]
            allowed(key, role)
            if everywhere and key is not None and key.indexes:
                raise Problem(
                    "forbidden",
                    f"the key {key.name!r} is only for some indexes: this needs one that is for all of them",
                )

    return check


def allowed(key: Key | None, role: Role | None) -> None:
    """Raise the problem of a key that is missing or unknown, or that may not do what a role does."""
    if key is None:
        raise Problem(
            "unauthorized",
            "this server needs a key: send 'Authorization: Bearer KEY' with one that 'suwen key new' made and that "
            "has neither expired nor been withdrawn",
            headers=_CHALLENGE,
        )
    if role is not None and role not in _MAY[key.role]:
        may = "only read" if key.role == "read" else "only work for the server, as 'suwen worker' does"
        raise Problem("forbidden", f"the key {key.name!r} may {may}: use one made with 'suwen key new --role {role}'")
