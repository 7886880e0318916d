"""A seeded mix of calls on an index, what the index must hold after each, and the child process that makes them.

Run as a program: ``workload.py run ROOT SEED [BUILD]`` makes the calls and tells of each before and after it;
``reopen ROOT`` opens an index that was cut short, ``fill ROOT SEED`` makes the calls on a disk that gets full, and
``check ROOT`` reads the states that are allowed from standard input and prints what is wrong.
"""

from __future__ import annotations

import ctypes
import functools
import json
import random
import sqlite3
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from suwen.corpora.records import Document, Passage
from suwen.index import embedded, snapshot
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import EncodedDocument, IndexProblem

DIMENSION = 32
#: Small, so that a workload of a few dozen passages seals several times.
SEAL = 8
EVERYTHING = 1000
VERBS = ("add", "delete", "compact", "rebuild")

#: What an index holds: the version of each document that is there.
State = dict[str, int]


class Call(NamedTuple):
    """One call: a verb, and the documents it is about with the version they get."""

    verb: str
    documents: tuple[tuple[str, int], ...] = ()

    def after(self, state: State) -> State:
        """The state this call leads to."""
        gone = {id_ for id_, _ in self.documents} if self.verb == "delete" else set()
        added = dict(self.documents) if self.verb == "add" else {}
        return {id_: version for id_, version in (state | added).items() if id_ not in gone}


def plan(seed: int, rounds: int = 3) -> list[Call]:
    """The calls of one workload: adds until tantivy merges its segments, then rounds in which every verb comes."""
    draw = random.Random(seed)
    version = 0
    state: State = {}
    calls: list[Call] = []
    verbs = ["add"] * 6 + ["delete"] + ["add"] * 4
    for _ in range(rounds):
        verbs += ["add", "add", "delete", "add", *draw.sample(["compact", "delete", "rebuild", "add"], 4)]
    for verb in verbs:
        documents: tuple[tuple[str, int], ...] = ()
        if verb == "add":
            version += 1
            documents = tuple((f"d{number}", version) for number in draw.sample(range(16), draw.randint(1, 5)))
        elif verb == "delete":
            ids = draw.sample(sorted(state), min(len(state), draw.randint(1, 2)))
            documents = tuple((id_, 0) for id_ in ids)
        calls.append(Call(verb, documents))
        state = calls[-1].after(state)
    return calls


def states(calls: list[Call]) -> Iterator[State]:
    """What the index holds before the first call, and after each."""
    state: State = {}
    yield state
    for call in calls:
        state = call.after(state)
        yield state


# -- documents whose every passage can be told from every other -----------------------------------------------------


def marks(id_: str, version: int) -> list[str]:
    """One word for each passage that no other passage of any version has."""
    return [f"zq{id_}v{version}p{ordinal}x" for ordinal in range(1 + zlib.crc32(f"{id_}.{version}".encode()) % 3)]


def vector(mark: str) -> np.ndarray:
    """The unit vector of the passage with this mark."""
    drawn = np.random.default_rng(zlib.crc32(mark.encode())).standard_normal(DIMENSION)
    return np.asarray(drawn / np.linalg.norm(drawn), dtype=np.float32)


def encoded(id_: str, version: int) -> EncodedDocument:
    """A document as an engine takes it in."""
    parts = [f"passage {mark} of a document" for mark in marks(id_, version)]
    text = "\n".join(parts)
    starts = [text.index(part) for part in parts]
    passages = [
        Passage(id_, ordinal, part, start, start + len(part))
        for ordinal, (part, start) in enumerate(zip(parts, starts, strict=True))
    ]
    vectors = np.stack([vector(mark) for mark in marks(id_, version)])
    document = Document(id_, text, "", {"version": version})
    return EncodedDocument(document, passages, vectors, "static", f"{id_}-{version}")


# -- looking at an index --------------------------------------------------------------------------------------------


def problems(engine: EmbeddedEngine, allowed: list[State]) -> list[str]:
    """What is wrong with an index that must be in one of these states; nothing when all is well."""
    found = [f"verify: {line}" for line in engine.verify()]
    by_dense, by_words = held(engine, by_words=False), held(engine, by_words=True)
    for name, rows in (("dense", by_dense), ("lexical", by_words)):
        found += [f"{name}: {mark} came back {rows.count(mark)} times" for mark in set(rows) if rows.count(mark) > 1]
    wanted = [sorted(mark for item in state.items() for mark in marks(*item)) for state in allowed]
    if sorted(by_dense) not in wanted:
        found.append(f"dense: holds {_difference(by_dense, wanted)}")
    if sorted(by_words) not in wanted or sorted(by_words) != sorted(by_dense):
        found.append(f"lexical: holds {_difference(by_words, wanted)}")
    state = next((state for state, marked in zip(allowed, wanted, strict=True) if marked == sorted(by_dense)), {})
    return found + _searches(engine, state)


def held(engine: EmbeddedEngine, *, by_words: bool) -> list[str]:
    """The mark of every passage one way of searching brings back, and what is wrong with its document."""
    with engine.snapshot() as view:
        ranking = view.lexical("passage", EVERYTHING) if by_words else view.dense(vector("any"), EVERYTHING)
        found = []
        for passage, metadata in ((stored.passage, stored.metadata) for stored in view.fetch(ranking.rows.tolist())):
            mark = passage.text.split()[1]
            expected = marks(passage.document_id, int(str(metadata["version"])))[passage.ordinal]
            found.append(mark if mark == expected else f"{mark} where {expected} belongs")
        return found


def _difference(marked: list[str], wanted: list[list[str]]) -> str:
    missing = [sorted(set(one) - set(marked)) for one in wanted]
    extra = [sorted(set(marked) - set(one)) for one in wanted]
    return f"{len(marked)} passages; missing {missing}, not expected {extra}"


def _searches(engine: EmbeddedEngine, state: State) -> list[str]:
    found = []
    with engine.snapshot() as view:
        for mark in (mark for item in state.items() for mark in marks(*item)):
            for name, ranking in (("dense", view.dense(vector(mark), 1)), ("lexical", view.lexical(mark, 1))):
                texts = [stored.passage.text for stored in view.fetch(ranking.rows.tolist())]
                if len(texts) != 1 or mark not in texts[0]:
                    found.append(f"{name}: a search for {mark} finds {texts}")
    if engine.stats().documents != len(state):
        found.append(f"stats: {engine.stats().documents} documents where there are {len(state)}")
    return found


# -- the child ------------------------------------------------------------------------------------------------------


def make(engine: EmbeddedEngine, call: Call) -> None:
    """Make one call."""
    if call.verb == "add":
        engine.add([encoded(*item) for item in call.documents])
    elif call.verb == "delete":
        engine.delete([id_ for id_, _ in call.documents])
    else:
        getattr(engine, call.verb)()


def tell(word: str, number: int) -> None:
    """One line to the parent, at once."""
    print(word, number, flush=True)


class Checkpointing(sqlite3.Connection):
    """Moves the log into the truth every few commits, not after megabytes: a kill shall find it doing so."""

    def __init__(self, *rest: Any, **named: Any) -> None:
        super().__init__(*rest, **named)
        self.execute("PRAGMA wal_autocheckpoint = 40")


def run(root: Path, seed: int) -> None:
    """Make the calls; faults count from the first acknowledged one on."""
    shim = ctypes.CDLL(None)
    # Compactions of both kinds: that give pages back alone, and that write anew.
    embedded.REWRITTEN, embedded.WASTE = 0, 5
    engine = EmbeddedEngine.create(root, space="sp-test", dimension=DIMENSION, seal=SEAL)
    for number, call in enumerate(plan(seed)):
        if number:
            shim.shim_arm(call.verb.encode())
        tell("intent", number)
        make(engine, call)
        tell("ack", number)
    shim.shim_arm(b"close")
    engine.close()


def reopen(root: Path) -> None:
    """Open for writing after a crash, with every change counted under the name ``open``, and close."""
    ctypes.CDLL(None).shim_arm(b"open")
    EmbeddedEngine.open(root, write=True, seal=SEAL).close()


def fill(root: Path, seed: int) -> None:
    """On a disk that gets full a call fails in words, loses nothing, and works once there is room: what does not?"""
    shim = ctypes.CDLL(None)
    snapshot.EXACT_LIMIT = 0
    engine = EmbeddedEngine.create(root, space="sp-test", dimension=DIMENSION, seal=SEAL)
    refused, found, before = "", [], State()
    for call in plan(seed, rounds=1):
        shim.shim_arm(call.verb.encode())
        after = call.after(before)
        try:
            make(engine, call)
        except Exception as problem:  # its kind is what is judged
            refused = call.verb
            found += _refusal(engine, call, problem, [before, after])
            shim.shim_space()
            make(engine, call)
            found += [f"after {call.verb}: {line}" for line in problems(engine, [after])]
        # A disk that got full unnoticed (in a merge, or a checkpoint) shall not hurt later calls either.
        shim.shim_space()
        before = after
    found += [f"in the end: {line}" for line in problems(engine, [before])]
    engine.close()
    print(json.dumps({"refused": refused, "problems": found, "state": before}), flush=True)


def _refusal(engine: EmbeddedEngine, call: Call, problem: Exception, allowed: list[State]) -> list[str]:
    """What is wrong with a call that failed: it must say so in suwen's words, and leave reading as it was."""
    found = []
    if not isinstance(problem, IndexProblem) or "space" not in str(problem):
        found.append(f"{call.verb} raised {type(problem).__name__}: {problem}")
    if not ctypes.CDLL(None).shim_full():
        found.append(f"{call.verb} failed with room on the disk: {problem}")
    marked = sorted(held(engine, by_words=False))
    wanted = [sorted(mark for item in state.items() for mark in marks(*item)) for state in allowed]
    if marked not in wanted:
        found.append(f"{call.verb}, disk full: dense holds {_difference(marked, wanted)}")
    return found


def check(root: Path, allowed: list[State]) -> list[str]:
    """Open after a crash, look, write once more, look again; and once more as a reader."""
    # A crash must leave nothing that only a rebuild mends: a large index would not get one on opening.
    embedded._HEAL_LIMIT = -1
    # Small indexes are searched in the truth; the vector files are what is to be checked here.
    snapshot.EXACT_LIMIT = 0
    try:
        engine = EmbeddedEngine.open(root, write=True, seal=SEAL)
        found = problems(engine, allowed)
        if found:
            return found
        extra = {"extra": 1}
        make(engine, Call("add", tuple(extra.items())))
        found = [f"after another add: {line}" for line in problems(engine, [state | extra for state in allowed])]
        engine.close()
        engine = EmbeddedEngine.open(root)
        found += [f"as a reader: {line}" for line in problems(engine, [state | extra for state in allowed])]
        engine.close()
    except Exception as problem:  # whatever it is, an index that cannot be opened is what is looked for here
        return [f"{type(problem).__name__}: {problem}"]
    return found


if __name__ == "__main__":
    verb, folder, *rest = sys.argv[1:]
    if verb == "check":
        print(json.dumps(check(Path(folder), json.load(sys.stdin))))
    elif verb == "reopen":
        reopen(Path(folder))
    elif verb == "fill":
        fill(Path(folder), int(rest[0]))
    else:
        sqlite3.connect = functools.partial(sqlite3.connect, factory=Checkpointing)  # type: ignore[assignment]
        if rest[1:]:
            from broken import BUILDS

            BUILDS[rest[1]]()
        run(Path(folder), int(rest[0]))
