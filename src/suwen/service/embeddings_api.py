"""``/v1/embeddings`` and ``/v1/models`` as OpenAI's clients speak them, over the tiers of the index's pair."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.responses import Response

from suwen.encoders.pair import Pair
from suwen.encoders.prompts import Form
from suwen.encoders.query import Vectors
from suwen.encoders.static import unit
from suwen.service.answers import json_answer
from suwen.service.direct_route import DirectRoute
from suwen.service.keys import needs
from suwen.service.problems import Problem, documented
from suwen.service.request_checks import ALIAS, check_length, cleaned_aside, tier_of
from suwen.service.request_log import note
from suwen.service.served_index import holder_of, served_of

_TEXT_PROBLEMS = ("unknown_model", "no_instruction", "too_many", "text_too_long")


class EmbeddingRequest(BaseModel):
    """Texts to encode. Fields of OpenAI's protocol that mean nothing here, such as ``user``, are ignored."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"model": "suwen", "input": ["肾结石患者每天应饮水两升以上。"]},
                {"model": "suwen", "input": "肾结石要多喝水吗", "input_type": "query", "encoding_format": "base64"},
            ]
        }
    )

    model: str = Field(default=ALIAS, description="A tier; `suwen` or the pair's name for the default one.")
    input: str | list[str] = Field(description="One text or several. Lists of token numbers are refused.")
    # A client that knows no input types embeds both sides with one call, and the form of documents fixes the space.
    input_type: Form = Field(default="document", description="The side of the pair the texts stand on.")
    instruction: str | None = Field(
        default=None, description="For queries, where the pair's prompt has a place for one."
    )
    encoding_format: Literal["float", "base64"] = Field(default="float", description="base64: little-endian float32.")
    dimensions: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Cut the vectors to so many dimensions; only in a Matryoshka space."
    )

    @field_validator("input", mode="before")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        if isinstance(value, list) and any(isinstance(item, int | list) for item in value):
            raise ValueError(
                "token numbers belong to another model's vocabulary: send the texts themselves "
                "(LangChain: OpenAIEmbeddings(check_embedding_ctx_length=False))"
            )
        if isinstance(value, list) and not all(isinstance(item, str) for item in value):
            # pydantic would tell every one of them.
            raise ValueError("one of the texts is none: send a text, or a list of texts")
        return value


class Embedding(BaseModel):
    """The vector of one text."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Tokens that were read; the text beyond a tier's length is not."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingReply(BaseModel):
    """The vectors, in the order of the texts; ``model`` is the tier that made them."""

    object: Literal["list"] = "list"
    model: str
    data: list[Embedding]
    usage: Usage


class Model(BaseModel):
    """What can be named as ``model``."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    tier: str
    dimension: int
    max_length: int
    space: str


class ModelList(BaseModel):
    """Everything that can be named as ``model``."""

    object: Literal["list"] = "list"
    data: list[Model]


def routes() -> APIRouter:
    """The endpoints of OpenAI's protocol."""
    reading = [Depends(needs("read"))]
    router = APIRouter(prefix="/v1", tags=["openai"], dependencies=reading, route_class=DirectRoute)

    @router.post(
        "/embeddings", summary="Vectors of texts", response_model=EmbeddingReply, responses=documented(*_TEXT_PROBLEMS)
    )
    async def embeddings(asked: EmbeddingRequest, request: Request) -> Response:
        """Encode texts by a tier of the pair: OpenAI's protocol, and ``input_type`` beside it."""
        served = served_of(request)
        pair, settings = served.holder.index.pair, served.holder.settings
        tier, width = tier_of(pair, asked.model), width_of(pair, asked.dimensions)
        texts = [asked.input] if isinstance(asked.input, str) else asked.input
        texts = await cleaned_aside(texts, "input", settings.embedding_inputs, settings.text_characters)
        check_length(asked.instruction or "", settings.query_characters, "instruction")
        vectors, tokens = await served.encoding.encode(texts, tier, asked.input_type, asked.instruction)
        note(request, texts=len(texts), tokens=tokens, tier=tier, input_type=asked.input_type)
        return json_answer(
            {
                "object": "list",
                "model": tier,
                "data": [
                    {"object": "embedding", "index": index, "embedding": vector}
                    for index, vector in enumerate(written(cut(vectors, width), asked.encoding_format))
                ],
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }
        )

    @router.get("/models", summary="The tiers", response_model=ModelList, responses=documented())
    async def models(request: Request) -> Response:
        """What can be named as ``model``: ``suwen`` for the default tier, or a tier by its name."""
        pair = holder_of(request).index.pair
        return json_answer({"object": "list", "data": [described(pair, name) for name in (ALIAS, *pair.tiers)]})

    @router.get("/models/{model:path}", summary="One tier", response_model=Model, responses=documented("unknown_model"))
    async def model(model: str, request: Request) -> Response:
        """One of the models."""
        return json_answer(described(holder_of(request).index.pair, model))

    return router


def width_of(pair: Pair, wanted: int | None) -> int:
    """How many dimensions to give: fewer than the space's own only where it is a Matryoshka space.

    The manifest says so by a ``full_dimension`` above its ``dimension``: the space is itself a cut of wider vectors.
    """
    space = pair.space
    if wanted is None or wanted == space.dimension:
        return space.dimension
    if wanted > space.dimension:
        raise Problem(
            "invalid_request",
            f"the vectors have {space.dimension} dimensions: ask for at most that, or leave dimensions out",
            param="dimensions",
        )
    if space.full_dimension <= space.dimension:
        raise Problem(
            "invalid_request",
            f"the vectors of pair {pair.name} cannot be cut, its space is no Matryoshka one: leave dimensions out, "
            f"or ask for {space.dimension}",
            param="dimensions",
        )
    return wanted


def cut(vectors: Vectors, width: int) -> Vectors:
    """The first dimensions of vectors, scaled to length one again: a cut alone would leave them short."""
    return vectors if width == vectors.shape[1] else unit(vectors[:, :width])


def written(vectors: Vectors, encoding_format: str) -> list[Any]:
    """Vectors as the reply carries them: rows that become lists of numbers, or base64 of little-endian float32."""
    rows = np.ascontiguousarray(vectors, dtype="<f4")
    return [base64.b64encode(row).decode() for row in rows] if encoding_format == "base64" else list(rows)


def described(pair: Pair, name: str) -> dict[str, Any]:
    """A model as ``/v1/models`` lists it."""
    tier = tier_of(pair, name)
    return {
        "id": name,
        "object": "model",
        "created": int((pair.path / "suwen.json").stat().st_mtime),
        "owned_by": pair.name,
        "tier": tier,
        "dimension": pair.space.dimension,
        "max_length": pair.manifest.tiers[tier].max_length,
        "space": pair.space.id,
    }
