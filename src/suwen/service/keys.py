"""Keys of the API: making, keeping and knowing them, and which role a request needs. Keys are kept as hashes alone."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import tomllib
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from starlette.requests import Request

from suwen.durable import replacing
from suwen.service.problems import Problem
from suwen.service.serve_settings import SettingsProblem

Role = Literal["read", "write"]
_NAME = re.compile(r"[\w][\w.@-]{0,63}")
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="suwen"'}


class Key(NamedTuple):
    """What is known of a key: who has it and what it may do, not the key itself."""

    name: str
    role: Role
    salt: str
    hash: str

    def matches(self, presented: bytes) -> bool:
        """Whether this is the key, in the same time whatever was presented."""
        return hmac.compare_digest(_hashed(self.salt, presented), self.hash)


class Keys:
    """The keys of a server; with none, every caller may do everything."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, presented: bytes | None) -> Key | None:
        """The key that was presented, if it is one of these."""
        if not presented:
            return None
        # All are compared, also after a match: the time must not tell which one it was.
        matching = [key for key in self._keys if key.matches(presented)]
        return matching[0] if matching else None

    @classmethod
    def load(cls, file: Path | None) -> Keys:
        """Read a file of keys; no file, no keys."""
        if file is None:
            return cls()
        try:
            records = tomllib.loads(file.read_text(encoding="utf-8")).get("keys", [])
            keys = [Key(**record) for record in records]
        except FileNotFoundError:
            raise SettingsProblem(f"there is no {file}: make a key with 'suwen key new --file {file}'") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, TypeError) as problem:
            raise SettingsProblem(
                f"{file} is not a file of keys ({problem}): make one with 'suwen key new --file {file}'"
            ) from None
        for key in keys:
            if key.role not in get_args(Role) or not re.fullmatch("[0-9a-f]{64}", str(key.hash)):
                raise SettingsProblem(f"{file}: the key {key.name!r} is damaged: drop it and make it again")
        if not keys:
            raise SettingsProblem(f"{file} holds no key: make one with 'suwen key new --file {file}'")
        return cls(keys)


def _hashed(salt: str, key: bytes) -> str:
    # A key is 256 random bits: nothing can be guessed, so a slow hash would only slow every request.
    return hashlib.sha256(salt.encode() + key).hexdigest()


def new_key(file: Path, name: str, role: Role) -> str:
    """Make a key and add it to a file of keys; the key itself is given back and kept nowhere."""
    if not _NAME.fullmatch(name):
        raise SettingsProblem(f"{name!r} cannot name a key: use letters, digits, '.', '@', '_' and '-', at most 64")
    known = file.read_text(encoding="utf-8") if file.exists() else ""
    if known and any(key.name == name for key in Keys.load(file)._keys):
        raise SettingsProblem(f"{file} has a key named {name!r}: choose another name, or drop that one from the file")
    key, salt = f"suwen_{secrets.token_urlsafe(32)}", secrets.token_hex(16)
    record = {"name": name, "role": role, "salt": salt, "hash": _hashed(salt, key.encode())}
    lines = [f"{field} = {json.dumps(value, ensure_ascii=False)}" for field, value in record.items()]
    text = known + ("\n" if known else "") + "\n".join(["[[keys]]", *lines]) + "\n"
    try:
        with replacing(file) as stream:
            os.fchmod(stream.fileno(), 0o600)  # nobody else's to read
            stream.write(text.encode())
    except OSError as problem:
        raise SettingsProblem(f"{file} cannot be written ({problem.strerror}): choose another --file") from problem
    return key


def presented_key(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The key of a request: ``Authorization: Bearer KEY``, or ``X-API-Key: KEY``."""
    other = None
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip()
        if name == b"x-api-key":
            other = value.strip()
    return other


def needs(role: Role) -> Callable[[Request], Awaitable[None]]:
    """A dependency that lets a request through only with a key of the role; a key that may write may read.

    ``Depends(needs("read"))``. Who asks was found out on the way in, see :class:`suwen.service.request_intake.Intake`.
    """

    async def check(request: Request) -> None:
        keys: Keys = request.scope["suwen.keys"]
        if len(keys):
            allowed(request.scope["suwen.key"], role)

    return check


def allowed(key: Key | None, role: Role) -> None:
    """Raise the problem of a key that is missing, unknown, or not of the role."""
    if key is None:
        raise Problem(
            "unauthorized",
            "this server needs a key: send 'Authorization: Bearer KEY' with one that 'suwen key new' made",
            headers=_CHALLENGE,
        )
    if role == "write" and key.role != "write":
        raise Problem(
            "forbidden", f"the key {key.name!r} may only read: use one made with 'suwen key new --role write'"
        )
