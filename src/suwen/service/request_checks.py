"""What requests have in common: bodies without unknown fields, and checks against what the server serves and takes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, model_validator
from pydantic_core import PydanticCustomError

from suwen.encoders.pair import Pair
from suwen.service.problems import Problem
from suwen.service.serve_settings import ServeSettings
from suwen.text.clean import clean

T = TypeVar("T")
#: The model name every service answers to, whatever its pair is called.
ALIAS = "suwen"
LONGEST_ID = 512


class Asked(BaseModel):
    """A body of the service's own API: every field is known, and of its kind."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Part(Asked):
    """Something within a body, of which there may be many."""

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        # pydantic would make an error of every unknown field before it tells the first: there may be thousands.
        for name in value if isinstance(value, dict) else ():
            if name not in cls.model_fields:
                raise PydanticCustomError("unknown_field", "there is no such field", {"field": name})
        return value


#: A list whose first wrong item is the only one that is told, for the same reason.
Many = Annotated[list[T], FailFast()]
#: Characters that are cleaned on the spot: a millisecond.
_CLEANED_AT_ONCE = 50_000


def check_index(settings: ServeSettings, name: str | None) -> None:
    """Raise ``unknown_index`` for the name of another index."""
    if name is not None and name != settings.name:
        raise Problem("unknown_index", f"this server has no index {name!r}: it serves {settings.name!r}", param="index")


def check_tier(pair: Pair, tier: str | None) -> None:
    """Raise ``unknown_tier`` for a tier the pair does not have."""
    if tier is not None and tier not in pair.tiers:
        raise Problem(
            "unknown_tier",
            f"the pair {pair.name} has no tier {tier!r}: choose one of {', '.join(pair.tiers)}",
            param="tier",
        )


def tier_of(pair: Pair, model: str) -> str:
    """The tier a model name stands for: its own name, or the default one's for ``suwen`` and the pair's name."""
    if model in pair.manifest.tiers:
        return model
    if model in (ALIAS, pair.name):
        return pair.default_tier
    known = ", ".join([ALIAS, *pair.tiers])
    raise Problem("unknown_model", f"no model is called {model!r}: use one of {known}", param="model")


def check_count(count: int, most: int, param: str) -> None:
    """Raise ``too_many`` for a list longer than the server takes."""
    if count > most:
        raise Problem(
            "too_many", f"{param} holds {count}, at most {most} are taken in one request: send several", param=param
        )


def check_length(text: str, longest: int, param: str) -> None:
    """Raise ``text_too_long`` for a text longer than the server takes."""
    if len(text) > longest:
        raise Problem(
            "text_too_long",
            f"{param} has {len(text)} characters, at most {longest} are taken: shorten it, or split it",
            param=param,
        )


async def cleaned_aside(texts: Sequence[str], param: str, most: int, longest: int) -> list[str]:
    """As :func:`cleaned`, in another thread where there is much to clean."""
    if sum(map(len, texts)) <= _CLEANED_AT_ONCE:
        return cleaned(texts, param, most, longest)
    return await asyncio.to_thread(cleaned, texts, param, most, longest)


def cleaned(texts: Sequence[str], param: str, most: int, longest: int) -> list[str]:
    """The texts as they are encoded (clean, as in searches and in the index), or the problem with one of them.

    Args:
        texts: What was sent.
        param: The field it was sent in.
        most: How many may be sent.
        longest: How many characters each may have.
    """
    if not texts:
        raise Problem("invalid_request", f"{param} is empty: send at least one text", param=param)
    check_count(len(texts), most, param)
    for place, text in enumerate(texts):
        check_length(text, longest, f"{param}[{place}]")
    clean_texts = [clean(text) for text in texts]
    if "" in clean_texts:
        empty = f"{param}[{clean_texts.index('')}]"
        raise Problem("invalid_request", f"{empty} has no text: leave it out, it has no vector", param=empty)
    return clean_texts
