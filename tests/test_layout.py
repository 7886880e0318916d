"""The shape of the source tree: floors, names, docstrings, and silence in the library."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "suwen"
#: From the top floor to the ground: a room imports only rooms that stand after it.
FLOORS = (
    "cli",
    "service",
    "training",
    "bench",
    "curate",
    "jury",
    "retrieve",
    "hyde",
    "llm",
    "index",
    "encoders",
    "corpora",
    "text",
)
#: Belongs to no room, imports none, and is open to all.
GROUND = ("errors", "choices", "durable", "html_kit", "sqlite_file", "toml_keys")
#: All that other rooms may know of ``index/``: what an engine is, where one is and how it is opened, what a filter may
#: say, its recall, and how it is copied to another.
CONTRACT = {"engine", "address", "opening", "filters", "recall", "copying"}
MODULES = sorted(SOURCE.rglob("*.py"))
NAMES = [path.relative_to(SOURCE).as_posix() for path in MODULES]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported_rooms(module: ast.Module) -> Iterator[tuple[int, str]]:
    """The rooms a module imports from, with the line."""
    for line, rest in imported(module):
        yield line, rest.partition(".")[0]


def imported(module: ast.Module) -> Iterator[tuple[int, str]]:
    """What a module imports of the house, with the line: anywhere in it, inside functions too."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            top, _, rest = name.partition(".")
            if top == "suwen" and rest:
                yield node.lineno, rest


def floor(room: str) -> int:
    return FLOORS.index(room)


def wrong_imports(room: str, module: ast.Module) -> list[str]:
    bad = []
    for line, other in imported_rooms(module):
        if other in FLOORS and other != room and floor(other) < floor(room):
            bad.append(f"line {line}: {room} imports {other}, which stands above it")
    return bad


def test_there_is_something_to_check() -> None:
    assert {"cli/main.py", "index/engine.py", "text/split.py"} <= set(NAMES)


def test_every_folder_is_a_known_room() -> None:
    folders = {path.relative_to(SOURCE).parts[0] for path in MODULES if path.parent != SOURCE}
    assert folders <= set(FLOORS)


@pytest.mark.parametrize(
    "path", [path for path in MODULES if path.parent != SOURCE], ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_a_room_imports_only_rooms_under_it(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0]
    assert wrong_imports(room, tree(path)) == []


def test_an_import_of_a_room_above_is_noticed() -> None:
    upwards = ast.parse("def f():\n    from suwen.retrieve.retriever import Index")
    assert wrong_imports("index", upwards) == ["line 2: index imports retrieve, which stands above it"]
    assert wrong_imports("index", ast.parse("import suwen.cli.main")) != []
    assert wrong_imports("index", ast.parse("from suwen import cli")) != []
    assert wrong_imports("retrieve", ast.parse("from suwen.index.engine import Engine")) == []


def behind_the_contract(module: ast.Module) -> list[str]:
    """Imports of an engine's own modules."""
    names = [(line, *name.split(".")) for line, name in imported(module)]
    return [
        f"line {line}: {'.'.join(rest)}"
        for line, room, *rest in names
        if room == "index" and rest[:1] and rest[0] not in CONTRACT
    ]


def test_engines_are_known_by_their_contract_alone() -> None:
    outside = [path for path in MODULES if path.relative_to(SOURCE).parts[0] != "index"]
    assert {path: bad for path in outside if (bad := behind_the_contract(tree(path)))} == {}


def test_an_import_of_an_engine_is_noticed() -> None:
    for line in (
        "from suwen.index.embedded import EmbeddedEngine",
        "from suwen.index import truth",
        "import suwen.index.lexical",
    ):
        assert behind_the_contract(ast.parse(line)) != []
    assert behind_the_contract(ast.parse("from suwen.index.engine import Engine")) == []
    assert behind_the_contract(ast.parse("from suwen.index import filters")) == []


def test_the_ground_floor_imports_no_room() -> None:
    for name in GROUND:
        assert {room for _, room in imported_rooms(tree(SOURCE / f"{name}.py"))} <= {*GROUND}


def test_no_module_imports_by_dots() -> None:
    for path in MODULES:
        dotted = [node for node in ast.walk(tree(path)) if isinstance(node, ast.ImportFrom) and node.level]
        assert dotted == [], f"{path}: write the whole name of what is imported"


def test_helpers_live_with_the_noun_they_serve() -> None:
    banned = {"utils.py", "util.py", "common.py", "helpers.py", "misc.py"}
    assert [name for name in NAMES if name.rpartition("/")[2] in banned] == []


def test_every_module_says_what_lives_in_it() -> None:
    silent = [
        name
        for name, path in zip(NAMES, MODULES, strict=True)
        if not ast.get_docstring(tree(path)) and path.read_text(encoding="utf-8").strip()
    ]
    assert silent == []


def test_the_library_prints_nothing() -> None:
    loud = [
        f"{name}:{node.lineno}"
        for name, path in zip(NAMES, MODULES, strict=True)
        if not name.startswith("cli/")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert loud == []


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{name}:{node.lineno} {node.name}"
        for name, path in zip(NAMES, MODULES, strict=True)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and body_lines(node) > 60
    ]
    assert long == []


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of code: the signature and the docstring are the reader's, not the function's, length."""
    body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1
