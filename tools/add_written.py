"""Add what a language model wrote to training data that are there already, without the public files they came from.

``tools/make_training_data.py --written`` draws everything anew from those files. Where only its folder is at hand, as
on a machine with a GPU, this adds the rows ``written-*`` and the new texts to a copy of it. Nothing that the folder
holds out is added. Example::

    python tools/add_written.py training-data written.jsonl.gz training-data-2
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import shutil
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from make_training_data import MOST_ROWS, ROWS, TITLES, admitted, read_written, thinned, written

from suwen.corpora.files import open_text
from suwen.corpora.training_rows import write_training_rows
from suwen.curate.leakage import HeldOut
from suwen.durable import new_folder

log = logging.getLogger("add-written")


class Folder:
    """Training data, as the functions that make rows of written lines ask for them."""

    def __init__(self, folder: Path, lines: Path) -> None:
        self.folder, self.written = folder, list(read_written(lines))
        self.held_out = HeldOut.read(folder / "held-out.jsonl.gz")
        self.hit = lru_cache(1 << 17)(self.held_out.hit)


def new_texts(data: Any, known: set[str]) -> Iterator[dict[str, str]]:
    """What was written as unlabelled texts: questions and search words, and titles; each once, none held out."""
    asked = ((line.query, "query") for line in data.written if line.kind != "title")
    titles = ((row.pos[0], "title") for row in written(*TITLES)(data))
    for text, kind in (*asked, *titles):
        if text not in known and data.hit(text) is None:
            known.add(text)
            yield {"text": text, "kind": kind, "source": "written"}


def add(folder: Path, lines: Path, out: Path, seed: int = 0) -> dict[str, int]:
    """Write the folder with what was written; gives how many rows of each source and texts came to it."""
    data: Any = Folder(folder, lines)
    counts: dict[str, int] = {}
    with new_folder(out) as stage:
        shutil.copytree(folder, stage, dirs_exist_ok=True)
        for name, source in ROWS.items():
            if name.startswith("written-"):
                kept = thinned(admitted(source(data), data, Counter()), MOST_ROWS, seed)
                counts[name] = write_training_rows(stage / "rows" / f"{name}.jsonl.gz", kept) if kept else 0
        with open_text(folder / "texts.jsonl.gz") as stream:
            texts = [json.loads(line) for line in stream]
        more = list(new_texts(data, {text["text"] for text in texts}))
        counts["texts"] = len(more)
        # Packed lightly: it is read on the same machine, which a GPU waits on.
        with gzip.open(stage / "texts.jsonl.gz", "wt", encoding="utf-8", compresslevel=1) as stream:
            stream.writelines(json.dumps(text, ensure_ascii=False) + "\n" for text in (*texts, *more))
        (stage / "added.json").write_text(json.dumps(counts, indent=2) + "\n", encoding="utf-8")
    return counts


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder of tools/make_training_data.py")
    parser.add_argument("written", type=Path, help="what tools/write_texts.py wrote")
    parser.add_argument("out", type=Path, help="a new folder for both")
    asked = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if asked.out.exists():
        raise SystemExit(f"{asked.out} exists; remove it or choose another folder")
    log.info("%s", json.dumps(add(asked.data, asked.written, asked.out)))


if __name__ == "__main__":
    main()
