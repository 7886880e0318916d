"""From text to token ids by a ``tokenizer.json``, for every encoder that runs without torch."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from tokenizers import Tokenizer

from suwen.encoders.space import DamagedPair

#: Well above what any script needs, so that the first try is nearly always enough.
_CHARACTERS_PER_TOKEN = 16
_SETTING = rb"(?:null|\{(?:[^{}]|\{[^{}]*\})*\})"
#: What a ``tokenizer.json`` begins with and what is set anew here: the length, and the padding.
_SETTINGS = re.compile(
    rb'\s*\{\s*"version":\s*"[^"]*",\s*"truncation":\s*%b,\s*"padding":\s*%b,' % (_SETTING, _SETTING)
)


def well_formed(text: str) -> str:
    """The text with lone surrogates replaced: JSON may carry half an emoji, which no tokenizer accepts."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def stand_in(tokenizer: Any, padding: str | None = None) -> int:
    """The id that stands for a text without tokens: unknown, else padding, else the first."""
    names = (getattr(tokenizer.model, "unk_token", None), "[UNK]", "<unk>", padding, "[PAD]", "<pad>")
    known = (tokenizer.token_to_id(name) for name in names if name)
    return next((id_ for id_ in known if id_ is not None), 0)


class Tokens:
    """A tokenizer with a length: ids to encode, and honest counts that ignore the length.

    Args:
        file: A ``tokenizer.json``.
        max_length: The most ids :meth:`ids` gives, special tokens included.
        special: Add the tokenizer's special tokens (``[CLS]``, an end token); they survive truncation.
    """

    #: Those in use, by a hash of their files without the settings. Tiers that are blended have one vocabulary, as a
    #: rule: it is read and kept once.
    _in_use: ClassVar[WeakValueDictionary[bytes, Tokens]] = WeakValueDictionary()

    def __init__(self, file: Path, max_length: int, *, special: bool = True) -> None:
        self._special, self._max_length = special, max_length
        try:
            data = file.read_bytes()
            settings = _SETTINGS.match(data)
            key = hashlib.sha256(data[settings.end() if settings else 0 :]).digest()
            known = self._in_use.get(key)
            self._tokenizer: Any = _twin(known._tokenizer) if known else Tokenizer.from_buffer(data)
        except Exception as error:  # the Rust side raises bare Exception for a malformed file
            raise DamagedPair(
                f"{file} is not a tokenizer.json that can be read ({error}): export the tier again"
            ) from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length=max_length)
        self._in_use[key] = self

    def ids(self, text: str) -> list[int]:
        """The ids of one text, cut to the length; never empty (see :func:`stand_in`)."""
        ids: list[int] = self._encode(well_formed(text)).ids
        return ids or [stand_in(self._tokenizer)]

    def _encode(self, text: str) -> Any:
        # A megabyte takes a second to tokenise, for the sake of its first few hundred tokens. A prefix gives the same
        # ones as long as a whole chunk of tokens lies between them and the cut.
        size = self._max_length * _CHARACTERS_PER_TOKEN
        while True:
            piece = _prefix(text, size)
            encoding = self._tokenizer.encode(piece, add_special_tokens=self._special)
            if len(piece) == len(text) or len(encoding.overflowing) > 1:
                return encoding
            size *= 4

    def count(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each whole text has, special tokens left out."""
        batch = self._counter.encode_batch_fast([well_formed(text) for text in texts], add_special_tokens=False)
        return [len(encoding.ids) for encoding in batch]

    @cached_property
    def _counter(self) -> Any:
        # A tokenizer of its own: switching truncation off on the shared one would race with ids() in another thread.
        return _twin(self._tokenizer)


def _prefix(text: str, size: int) -> str:
    """About the first ``size`` characters, cut where a word ends: half a word may be other tokens altogether."""
    if size < len(text):
        for end in range(size, len(text)):
            if text[end].isspace() or "\u4e00" <= text[end] <= "\u9fff":
                return text[:end]
    return text


def _twin(tokenizer: Any) -> Any:
    """A tokenizer over the same vocabulary, which neither cuts nor pads."""
    twin = Tokenizer(tokenizer.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor"):
        if (its := getattr(tokenizer, part)) is not None:
            setattr(twin, part, its)
    twin.add_tokens([token for _, token in sorted(tokenizer.get_added_tokens_decoder().items())])
    return twin
