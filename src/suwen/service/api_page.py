"""``/api``: the description of the API as a page, made from the description itself. Needs no internet and no key.

What it shows holds no text of any index. Its script sends a request that the reader has written, with the key of the
tab if the search page has one; without scripts it can still be read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from suwen.service.web_pages import File, sent

_FRAME = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>suwen: the API</title>
<link rel="icon" href="/web/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/web/reference.css">
<script type="module" src="/web/reference.js"></script>
</head>
<body>
<header><h1><a href="/">suwen</a> {version}: the API</h1>
<p>{about} <a href="/openapi.json">openapi.json</a></p></header>
<nav aria-label="Requests">{contents}</nav>
<main>{main}</main>
</body>
</html>
"""


def routes(describe: Callable[[], dict[str, Any]]) -> APIRouter:
    """The page; made when it is first asked for.

    Args:
        describe: Gives the API's description.
    """
    router = APIRouter(include_in_schema=False)
    made: list[File] = []

    @router.get("/api")
    async def page(request: Request) -> Response:
        if not made:
            made.append(File.of("api.html", page_of(describe()).encode()))
        return sent(made[0], request)

    return router


def page_of(schema: Mapping[str, Any]) -> str:
    """The whole page of a description."""
    by_tag: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation.get("tags", ["other"])[0], []).append((method, path, operation))
    contents, main = [], []
    for tag, operations in by_tag.items():
        links = "".join(
            f'<li><a href="#{_mark(method, path)}"><b>{method.upper()}</b> {escape(path)}</a></li>'
            for method, path, _ in operations
        )
        contents.append(f"<h2>{escape(tag)}</h2><ul>{links}</ul>")
        main += [_operation(schema, method, path, operation) for method, path, operation in operations]
    about, version = escape(schema["info"]["description"]), escape(schema["info"]["version"])
    return _FRAME.format(about=about, version=version, contents="".join(contents), main="".join(main))


def _mark(method: str, path: str) -> str:
    return escape(f"{method}{path}".replace("{", "").replace("}", "").replace("/", "-"))


def _operation(schema: Mapping[str, Any], method: str, path: str, operation: Mapping[str, Any]) -> str:
    mark = _mark(method, path)
    several = '<p class="soft">For another index: <code>/indexes/NAME' + escape(path) + "</code></p>"
    parts = [
        f'<section id="{mark}" aria-labelledby="{mark}-title">',
        f'<h2 id="{mark}-title"><b>{method.upper()}</b> <code>{escape(path)}</code></h2>',
        f"<p>{escape(operation.get('description') or operation['summary'])}</p>",
        several if "servers" in operation else "",
        *_parameters(operation),
        *_body(schema, operation),
        *_answers(operation),
        _form(mark, method, path, operation, schema),
        "</section>",
    ]
    return "".join(parts)


def _parameters(operation: Mapping[str, Any]) -> Iterator[str]:
    for one in operation.get("parameters", ()):
        kind = f"{one['in']}, {_kind(one.get('schema', {}))}"
        yield _row(one["name"], kind, one.get("description", ""), bool(one.get("required")))


def _body(schema: Mapping[str, Any], operation: Mapping[str, Any]) -> Iterator[str]:
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        yield f'<h3>Body: <code>{escape(kind)}</code></h3><div class="fields">'
        shape = _resolved(schema, body.get("schema", {}))
        needed = shape.get("required", ())
        for name, field in shape.get("properties", {}).items():
            yield _row(name, _kind(field), field.get("description", ""), name in needed)
        yield "</div>"


def _row(name: str, kind: str, text: str, required: bool) -> str:
    need = " <em>required</em>" if required else ""
    return f'<p class="field"><code>{escape(name)}</code> <span>{escape(kind)}{need}</span> {escape(text)}</p>'


def _answers(operation: Mapping[str, Any]) -> Iterator[str]:
    yield "<details><summary>Answers</summary>"
    for status, answer in operation["responses"].items():
        yield f'<p class="field"><code>{escape(status)}</code> {escape(answer["description"])}</p>'
        example = answer.get("content", {}).get("application/json", {}).get("example")
        if example is not None:
            yield f"<pre>{escape(_written(example))}</pre>"
    yield "</details>"


def _form(mark: str, method: str, path: str, operation: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """A request to send: an address to fill in, and a body that begins as the example."""
    content = operation.get("requestBody", {}).get("content", {})
    kind = next(iter(content), "")
    if kind == "application/x-tar":
        return ""
    body = ""
    if kind:
        one = content[kind]
        examples = _resolved(schema, one.get("schema", {})).get("examples", [])
        example = examples[0] if examples else one.get("example", {})
        written = example if isinstance(example, str) else _written(example)
        body = (
            f'<label for="{mark}-body">Body</label>'
            f'<textarea id="{mark}-body" name="body" rows="6" spellcheck="false">{escape(written)}</textarea>'
        )
    return (
        '<details class="try"><summary>Try it</summary>'
        f'<form data-method="{method.upper()}" data-kind="{escape(kind)}">'
        f'<label for="{mark}-path">Address</label><input id="{mark}-path" name="path" value="{escape(path)}">{body}'
        '<button type="submit">Send</button><output aria-live="polite"></output></form></details>'
    )


def _resolved(schema: Mapping[str, Any], shape: Mapping[str, Any]) -> Mapping[str, Any]:
    name = str(shape.get("$ref", "")).rpartition("/")[2]
    return schema["components"]["schemas"][name] if name else shape


def _kind(shape: Mapping[str, Any]) -> str:
    """What a field may be, in a few words."""
    if "$ref" in shape:
        return str(shape["$ref"]).rpartition("/")[2]
    if "enum" in shape:
        return " | ".join(map(str, shape["enum"]))
    if "anyOf" in shape:
        return " | ".join(dict.fromkeys(_kind(one) for one in shape["anyOf"]))
    if shape.get("type") == "array":
        return f"list of {_kind(shape.get('items', {}))}"
    default = f", default {json.dumps(shape['default'], ensure_ascii=False)}" if "default" in shape else ""
    return f"{shape.get('type', 'any')}{default}"


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
