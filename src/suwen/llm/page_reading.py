"""Having pictures of pages read by a vision model behind an endpoint. What its marks mean is in ``text.vision_text``.

Replies are durable before they are used: a book that was stopped goes on, and no page is paid for twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from suwen.corpora.book_pages import PictureReader, Unread
from suwen.llm.asker import Unfinished
from suwen.llm.client import LLM
from suwen.llm.config import ConfigProblem
from suwen.llm.prompts import load_prompt
from suwen.llm.requests import Reply, Request


def picture_reader(llm: LLM, model: str) -> PictureReader:
    """A reader of pages for ``corpora.readers``, by one model.

    Args:
        llm: The client; it stays open for as long as pages are read.
        model: The configured name of a model with ``vision``.

    Raises:
        ConfigProblem: The model is not there, or is not said to read pictures: no page leaves this machine by mistake.
    """
    if not llm.config.model(model).vision:
        raise ConfigProblem(
            f"model {model!r} is not said to read pictures: where scans may be sent to its endpoint, add vision = true "
            f"to [llm.models.{model}]"
        )
    llm.config.require([model])
    messages = load_prompt("page-text", "en").render()

    def read(pictures: Sequence[bytes]) -> list[str | Unread]:
        keys = [hashlib.sha256(picture).hexdigest() for picture in pictures]
        asked = {
            key: Request(model, messages, key=f"page {key[:12]}", image=picture)
            for key, picture in zip(keys, pictures, strict=True)
        }
        said: dict[str, str | Unread] = {}

        def take(request: Request, reply: Reply) -> None:
            said[request.key] = _text(reply)

        summary = llm.run(list(asked.values()), take)
        if summary.stopped is not None:
            raise Unfinished(f"reading scans: {summary.stopped}")
        return [said[asked[key].key] for key in keys]

    return PictureReader(read, llm.config.endpoint(model).concurrency)


def _text(reply: Reply) -> str | Unread:
    if reply.finish == "length":
        return Unread(f"{reply.model} was cut off at its max_tokens: raise them in [llm.models.{reply.model}]")
    return reply.text if reply.good else Unread(f"{reply.model} did not read it: {reply.error}")
