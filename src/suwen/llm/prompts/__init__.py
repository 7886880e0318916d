"""Prompts: the files beside this one, their loader, and rendering them to messages. Asks no model.

A prompt is one TOML file, ``NAME.toml``, with a version, a reply schema and its text in each language::

    version = 1
    about = "What it is for, in one line."
    schema = '''{"type": "object", …}'''     # JSON Schema, as JSON; leave it out where the reply is free text

    [zh]
    system = '''…'''
    user = '''… {{query}} …'''

    [en]
    …

``{{name}}`` marks a place; single braces are ordinary text. Every language has the same places.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from suwen.llm.config import LLMError
from suwen.llm.schema import SchemaProblem, check_schema

Role = Literal["system", "user", "assistant"]
_PLACE = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
_FIELDS = {"version", "about", "schema"}


class PromptProblem(LLMError):
    """A prompt is not there, is badly written, or is given the wrong values."""


class Message(NamedTuple):
    """One message of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True)
class Prompt:
    """One prompt in one language.

    Attributes:
        name: The file's name without its ending.
        version: Counted up by hand whenever the meaning changes.
        language: ``zh`` or ``en``.
        system: The template of the system message; may be empty.
        user: The template of the user message.
        schema: The JSON Schema of the reply; None for free text.
    """

    name: str
    version: int
    language: str
    system: str
    user: str
    schema: dict[str, Any] | None = field(default=None, hash=False)

    @property
    def places(self) -> tuple[str, ...]:
        """The names a rendering must give values for, in order of appearance."""
        return tuple(dict.fromkeys(_PLACE.findall(self.system) + _PLACE.findall(self.user)))

    @property
    def fingerprint(self) -> str:
        """Twelve digits that change with every change of its text or schema, for reports."""
        whole = json.dumps([self.name, self.system, self.user, self.schema], sort_keys=True)
        return hashlib.sha256(whole.encode()).hexdigest()[:12]

    def render(self, **values: str | int | float) -> tuple[Message, ...]:
        """Put values into their places, verbatim: braces inside a value mean nothing.

        >>> Prompt("ask", 1, "en", "", "Is {{drug}} safe?").render(drug="{{dose}}")
        (Message(role='user', content='Is {{dose}} safe?'),)
        """
        if missing := [name for name in self.places if name not in values]:
            raise PromptProblem(f"{self._called} needs {', '.join(missing)}: give render() a value for each")
        if unknown := sorted(set(values) - set(self.places)):
            raise PromptProblem(f"{self._called} has no place {', '.join(unknown)}: it has {', '.join(self.places)}")
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise PromptProblem(f"{self._called}: {name} is of {type(value).__name__}: give a text or a number")
        # One pass over the template: what a value brings along is never looked at again.
        filled = [_PLACE.sub(lambda place: str(values[place[1]]), text) for text in (self.system, self.user)]
        roles: tuple[Role, Role] = ("system", "user")
        return tuple(Message(role, text) for role, text in zip(roles, filled, strict=True) if text)

    @property
    def _called(self) -> str:
        return f"prompt {self.name!r} ({self.language}, version {self.version})"


def load_prompt(name: str, language: str = "zh", folder: Path | None = None) -> Prompt:
    """Read a prompt.

    Args:
        name: Its name.
        language: ``zh`` or ``en``.
        folder: Where the file is; the package's own prompts unless given.
    """
    home: Traversable = folder or resources.files(__name__)
    file = home / f"{name}.toml"
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name) or not file.is_file():
        raise PromptProblem(f"there is no prompt {name!r}: there are {', '.join(prompt_names(folder)) or 'none'}")
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise PromptProblem(f"prompt file {name}.toml is not TOML: {problem}") from None
    prompts = _prompts(name, data)
    if language not in prompts:
        raise PromptProblem(f"prompt {name!r} is not written in {language!r}: it is in {', '.join(sorted(prompts))}")
    return prompts[language]


def prompt_names(folder: Path | None = None) -> list[str]:
    """The names of all prompts there are."""
    home: Traversable = folder or resources.files(__name__)
    return sorted(file.name.removesuffix(".toml") for file in home.iterdir() if file.name.endswith(".toml"))


def _prompts(name: str, data: dict[str, Any]) -> dict[str, Prompt]:
    version = data.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise PromptProblem(f"prompt file {name}.toml has no version: write version = 1 at its top, and count it up")
    schema = _schema(name, data.get("schema"))
    prompts = {key: _one(name, version, key, data[key], schema) for key in data if key not in _FIELDS}
    if not prompts:
        raise PromptProblem(f"prompt file {name}.toml has no text: add a [zh] or an [en] section")
    if len({frozenset(prompt.places) for prompt in prompts.values()}) > 1:
        places = "; ".join(f"{key} has {', '.join(sorted(prompt.places))}" for key, prompt in prompts.items())
        raise PromptProblem(
            f"prompt file {name}.toml has other places in other languages ({places}): make them the same"
        )
    return prompts


def _schema(name: str, text: Any) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        schema: dict[str, Any] = json.loads(text)
        check_schema(schema)
    except (TypeError, ValueError) as problem:
        raise PromptProblem(
            f"prompt file {name}.toml: its schema is not JSON ({problem}): write it as a text"
        ) from None
    except SchemaProblem as problem:
        raise PromptProblem(f"prompt file {name}.toml: {problem}") from None
    return schema


def _one(name: str, version: int, language: str, section: Any, schema: dict[str, Any] | None) -> Prompt:
    good = isinstance(section, dict) and set(section) <= {"system", "user"} and section.get("user")
    if not good or not all(isinstance(text, str) for text in section.values()):
        raise PromptProblem(f"prompt file {name}.toml: [{language}] must hold user, and may hold system, as texts")
    prompt = Prompt(name, version, language, section.get("system", "").strip(), section["user"].strip(), schema)
    if "{{" in _PLACE.sub("", prompt.system + prompt.user):
        raise PromptProblem(f"prompt file {name}.toml: [{language}] has a {{{{ that opens no place: write {{{{name}}}}")
    return prompt
