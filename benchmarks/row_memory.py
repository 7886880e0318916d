"""How much memory a training row takes while rows and token ids are read from disk: millions of rows from patterns.

    python benchmarks/row_memory.py --work SCRATCH [--rows 5000000] [--batches 5000] [--out docs/data/row-memory.json]

SCRATCH needs about 2 kB of disk a row. Rows are written from patterns, in four sources of different sizes, one of them
symmetric with an instruction: a query, one positive, two negatives that are positives of other rows. Each step runs in
a process of its own: shards and the table of ids are made; token ids are made; a task is opened over them as a stage
does, and its batches are drawn, each with its mask, its token ids and its sources' weights.

Memory is what a process holds for itself (``RssAnon`` of /proc/self/status), the most that was seen, less what it held
when its imports were done. Pages of mapped files are given beside it (``RssFile``): the system takes them back when it
needs the room. For comparison, the first rows are held as Python's objects, as release 0.1.0 held all of them. Speed is
not measured here.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

SHARES = {"consult": 0.5, "titles": 0.3, "answers": 0.15, "alike": 0.05}
WEIGHTS = {"titles": 0.5, "alike": 2.0}
PLACES = ("头部", "胸口", "腹部", "后背", "膝盖", "手腕", "喉咙", "眼睛", "牙龈", "小腿")
SIGNS = ("疼痛", "发麻", "肿胀", "发痒", "出血", "僵硬", "灼热")
TIMES = ("早晨起床后", "饭后", "夜里", "运动以后", "受凉以后", "长时间坐着时")
HELD = 100_000


def query_of(number: int) -> str:
    """A question by its number; no two are alike."""
    return f"{TIMES[number % 6]}{PLACES[number // 6 % 10]}{SIGNS[number // 60 % 7]}第{number}天怎么办"


def document_of(number: int) -> str:
    """An answer by its number."""
    place, sign = PLACES[number * 7 % 10], SIGNS[number * 3 % 7]
    return (
        f"{place}{sign}可能与劳累有关，编号{number}。先休息并观察{number % 9 + 1}天，记录{TIMES[number % 6]}的变化；"
        f"如果{sign}加重，或者同时有发热，应当到医院检查，由医生决定是否用药。"
    )


def write_rows(folder: Path, rows: int) -> None:
    """Write the sources, one row at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    first = 0
    for name, share in SHARES.items():
        count, file = round(rows * share), folder / f"{name}.jsonl.gz"
        about = {"prompt": "找意思相近的话：", "type": "symmetric_sts"} if name == "alike" else {}
        if not file.is_file():
            unfinished = folder / f"{name}.part"
            with gzip.open(unfinished, "wt", encoding="utf-8", compresslevel=1) as stream:
                for number in range(first, first + count):
                    others = [first + (number * factor + 1) % count for factor in (31, 57)]
                    row = {
                        "query": query_of(number),
                        "pos": [document_of(number)],
                        "neg": [document_of(other) for other in others],
                        **about,
                    }
                    stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            unfinished.rename(file)
        first += count


def status() -> dict[str, int]:
    """Bytes of this process's own memory, and of mapped files."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return {
        line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon", "RssFile"))
    }


def most_held(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do some work; what it gives, with the most memory it held."""
    before, done, seen = status(), threading.Event(), [status()]

    def watch() -> None:
        while not done.wait(0.02):
            seen.append(status())

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.monotonic()
    try:
        given = work()
    finally:
        done.set()
        watcher.join()
    seen.append(status())
    most = {key: max(one[key] for one in seen) - before[key] for key in before}
    return {
        **given,
        "own_bytes": most["RssAnon"],
        "mapped_bytes": most["RssFile"],
        "minutes": (time.monotonic() - started) / 60,
    }


def opened(work: Path) -> Any:
    """The table over all sources, made where it is not there yet."""
    from suwen.training.tasks.row_tables import read_source, source_files, table_of

    files = source_files(work / "rows", None)
    return table_of({name: read_source(file, None, work / "shards") for name, file in files.items()})


class Characters:
    """Stands in for a student's tokenizer: each character is a token. A real one takes more time, not more memory."""

    prompt, max_length, is_static = "", 128, False

    @property
    def backend(self) -> Any:
        """What says that the tokens are the same."""
        return self

    def to_str(self) -> str:
        """Its name."""
        return "characters"

    def ids(self, texts: list[str], *, max_length: int) -> list[list[int]]:
        """The tokens of texts."""
        return [list(map(ord, text[:max_length])) for text in texts]


def sides(work: Path) -> tuple[Any, Any]:
    """What tokenises queries, and documents."""
    return Characters(), Characters()


def in_objects(work: Path, rows: int, batches: int) -> dict[str, Any]:
    """Rows as Python's objects."""
    from suwen.corpora.training_rows import read_training_rows

    held: list[Any] = []

    def hold() -> dict[str, Any]:
        held.extend(islice(read_training_rows(work / "rows" / "consult.jsonl.gz"), HELD))
        return {"rows": len(held)}

    return most_held(hold)


def make_shards(work: Path, rows: int, batches: int) -> dict[str, Any]:
    """Shards, and the table of ids."""
    from suwen.training.tasks.row_tables import table_of

    assert table_of  # imported before memory is measured

    def make() -> dict[str, Any]:
        table = opened(work)
        return {"rows": sum(table.sizes().values()), "queries": len(table.queries), "documents": len(table.documents)}

    return most_held(make)


def make_tokens(work: Path, rows: int, batches: int) -> dict[str, Any]:
    """Token ids of all texts."""
    from suwen.training.loop.batches import tokenise

    query, document = sides(work)
    table = opened(work)

    def make() -> dict[str, Any]:
        made = [
            tokenise(side, texts, cache=work / "tokens")
            for side, texts in ((query, table.queries), (document, table.documents))
        ]
        return {"rows": rows, "tokens": sum(int(one.offsets[-1]) for one in made)}

    return most_held(make)


def draw_batches(work: Path, rows: int, batches: int) -> dict[str, Any]:
    """The steps of a stage as far as its data go: which rows, which documents, what is masked, which tokens."""
    import torch

    from suwen.training.loop.batches import OneSourceBatches, tokenise
    from suwen.training.tasks.pair_task import PairLosses, PairTask, right_columns

    query, document = sides(work)

    def draw() -> dict[str, Any]:
        table = opened(work)
        asked, given = (
            tokenise(side, texts, cache=work / "tokens")
            for side, texts in ((query, table.queries), (document, table.documents))
        )
        plan = OneSourceBatches(table.sizes(), 64, 0, weights=WEIGHTS)
        unused: Any = None
        task = PairTask(table, unused, unused, [(torch.nn.Linear(1, 1), 1.0)], plan, PairLosses(), negatives=2)
        masked = tokens = 0
        for step in np.linspace(0, plan.per_epoch - 1, batches).astype(int).tolist():
            batch = task.draw(step)
            masked += int(right_columns(table, batch.queries, batch.documents).sum())
            tokens += len(asked.take(batch.queries)[0]) + len(given.take(batch.documents)[0])
        return {"rows": sum(table.sizes().values()), "batches": batches, "masked": masked, "tokens": tokens}

    return most_held(draw)


def steps() -> Iterator[tuple[str, Callable[..., dict[str, Any]]]]:
    """What is measured, in its order."""
    yield "rows as objects", in_objects
    yield "making shards and table", make_shards
    yield "making token ids", make_tokens
    yield "drawing batches", draw_batches


def main() -> None:
    """Measure, and write the numbers down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--batches", type=int, default=5000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    write_rows(options.work / "rows", options.rows)
    found: dict[str, Any] = {"command": f"python benchmarks/row_memory.py --work SCRATCH --rows {options.rows}"}
    for name, step in steps():
        # A process of its own, begun anew: what the one before it held and freed is not in its numbers.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            measured = pool.apply(step, (options.work, options.rows, options.batches))
        measured["bytes_per_row"] = round(measured["own_bytes"] / measured["rows"], 1)
        measured["mapped_bytes_per_row"] = round(measured["mapped_bytes"] / measured["rows"], 1)
        found[name] = measured
        print(name, json.dumps(measured), flush=True)
    folders = {name: options.work / name for name in ("shards", "tokens")}
    found["disk_bytes_per_row"] = {
        name: round(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / options.rows, 1)
        for name, folder in folders.items()
    }
    print(json.dumps(found["disk_bytes_per_row"]))
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
