"""The numbers of document_throughput.py kept in files, merged from several runs, and written as Markdown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

#: Hours for a million documents on an A100 80GB: CARE, Table 18.
PAPER = {"0.3B": 0.21, "4B": 2.95, "8B": 3.77}
#: Dense bf16 rates by NVIDIA's datasheets.
A100, H200 = 312e12, 989e12
TARGETS = {"0.6B": 0.33, "4B": 0.50, "8B": 0.60}
LEAST_COSINE = 0.999
#: From the plainest to the fastest: the order of the table.
WAYS = ("padded", "packed", "fused", "compiled")
#: What runs must share to stand in one table.
SAME = ("device", "torch", "transformers", "attention", "tokens", "query_tokens", "lengths")

Result = dict[str, Any]


def save(result: Result, out: Path | None) -> None:
    """Whole or not at all: a run may be cut off at any moment."""
    if out is None:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_name(out.name + ".part")
    beside.write_text(json.dumps(result, indent=1), encoding="utf-8")
    beside.replace(out)


def load(paths: list[Path]) -> tuple[list[Result], list[str]]:
    """The parts there are, and what is wrong with the others."""
    parts, wrong = [], []
    for path in paths:
        try:
            parts.append(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            wrong.append(f"{path.name} cannot be read: {error}")
    return parts, wrong


def merge(parts: list[Result]) -> Result:
    """One result of several runs. Of a shape in several, the last; the ceiling is the highest that any of them saw.

    Raises:
        ValueError: They are not from one machine, or not of one measurement.
    """
    if not parts:
        raise ValueError("there is no part to merge: run the shapes first, each with --out")
    for field in SAME:
        kinds = {json.dumps(part[field], sort_keys=True) for part in parts}
        if len(kinds) > 1:
            raise ValueError(f"parts differ in {field} ({', '.join(sorted(kinds))}): run them again, alike")
    ceilings: dict[str, float] = {}
    for part in parts:
        for size, rate in part["ceilings"].items():
            ceilings[size] = max(rate, ceilings.get(size, 0.0))
    shapes = {shape["name"]: shape for part in parts for shape in part["shapes"]}
    return {field: parts[0][field] for field in SAME} | {
        "ceilings": ceilings,
        "ceiling": max(ceilings.values()),
        "total_seconds": sum(part.get("total_seconds", 0.0) for part in parts),
        "shapes": sorted(shapes.values(), key=lambda shape: shape["parameters"]),
    }


def claimed(shape: Result) -> Result | None:
    """The row a shape is judged by: the last way that ran, which a failed compilation makes the uncompiled one."""
    rows = {row["way"]: row for row in shape["rows"]}
    return next((rows[way] for way in reversed(WAYS) if way in rows), None)


def table(result: Result) -> str:
    """The results in Markdown: documents, then vectors, then queries."""
    return "\n\n".join([_documents(result), _vectors(result), _queries(result)])


def _lines(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows])


def _ways(shape: Result) -> list[Result]:
    return sorted(shape["rows"], key=lambda row: WAYS.index(row["way"]))


def _documents(result: Result) -> str:
    head = ["shape", "way", "documents/s", "share of the ceiling", "asked", "hours for 1M documents"]
    rows = []
    for shape in result["shapes"]:
        for row in _ways(shape):
            name, main = shape["name"], row is claimed(shape)
            share = row["operations_per_second"] / result["ceiling"]
            cells = [name, row["way"], f"{row['documents_per_second']:,.1f}", f"{share:.1%}"]
            cells.append(f"{TARGETS[name]:.0%}, {_met(share >= TARGETS[name])}" if main and name in TARGETS else "")
            cells.append(f"{1e6 / row['documents_per_second'] / 3600:.2f}")
            cells.append(f"{PAPER[name]}" if main and name in PAPER else "")
            cells.append(f"{row['first_run_seconds']:.0f}" if row["way"] == "compiled" else "")
            rows.append([f"**{cell}**" if main and cell else cell for cell in cells])
    return _lines([*head, "the paper's, on an A100", "compiling, s"], rows)


def _met(yes: bool) -> str:
    return "met" if yes else "missed"


def _vectors(result: Result) -> str:
    head = ["shape", "weights", "way", "to plain fp32: least", "mean", "to plain bf16: least", "mean"]
    rows = []
    for shape in result["shapes"]:
        for row in _ways(shape):
            rows.append(
                [shape["name"], "fresh", row["way"], *_near(row["cosine_with_fp32"], row["cosine_with_padded"])]
            )
        if calm := shape.get("calm"):
            rows.append([shape["name"], "calm", "padded", *_near(calm["plain_with_fp32"], None)])
            rows.append(
                [shape["name"], "calm", calm["way"], *_near(calm["cosine_with_fp32"], calm["cosine_with_padded"])]
            )
    return _lines([*head, f"{LEAST_COSINE} to fp32"], rows)


def _near(exact: dict[str, float], plain: dict[str, float] | None) -> list[str]:
    cells = [f"{exact['least']:.5f}", f"{exact['mean']:.5f}"]
    cells += [f"{plain['least']:.5f}", f"{plain['mean']:.5f}"] if plain else ["", ""]
    return [*cells, _met(exact["least"] >= LEAST_COSINE)]


def _queries(result: Result) -> str:
    rated = [
        (shape["name"], shape["queries_per_second"]) for shape in result["shapes"] if "queries_per_second" in shape
    ]
    head = ["shape", f"queries/s, {result['query_tokens']} tokens each", f"{rated[0][0] if rated else ''} over it"]
    return _lines(head, [[name, f"{rate:,.0f}", f"{rated[0][1] / rate:.1f}"] for name, rate in rated])


def remarks(result: Result) -> list[str]:
    """What a reader must know before comparing."""
    said = []
    for shape in result["shapes"]:
        said += [f"{shape['name']} {way} failed: {error}" for way, error in shape["failed"].items()]
        said += [f"{shape['name']} {way} was not run: {why}" for way, why in shape["skipped"].items()]
    sizes = ", ".join(f"{size}: {rate / 1e12:.0f}" for size, rate in result["ceilings"].items())
    said.append(
        f"{result['device']}, torch {result['torch']}, transformers {result['transformers']}; {result['attention']}; "
        f"rows of {result['tokens']} tokens; ceiling {result['ceiling'] / 1e12:.0f} TFLOP/s ({sizes}); "
        f"{result['total_seconds']:.0f} s in all"
    )
    for shape in result["shapes"]:
        if "mean_tokens" in shape:
            said.append(
                f"{shape['name']}: {shape['documents']} documents of {shape['mean_tokens']:.0f} tokens on average; "
                f"vectors of different ones have a cosine of {shape['cosine_of_different_texts']:.3f} on average"
            )
        said += _when_compiling_pays(shape)
        if shape["name"] in PAPER and shape["decoder"]:
            most = A100 * PAPER[shape["name"]] * 3600 / 1e6 / (2 * shape["parameters"])
            said.append(
                f"the paper's {shape['name']} hours leave an A100, at its full rate, {most:.0f} tokens a document"
            )
    said.append(f"by their datasheets an H200 has {H200 / A100:.1f} times an A100's bf16 rate")
    return said


def _when_compiling_pays(shape: Result) -> list[str]:
    rows = {row["way"]: row for row in shape["rows"]}
    if not {"fused", "compiled"} <= rows.keys():
        return []
    saved = 1 / rows["fused"]["documents_per_second"] - 1 / rows["compiled"]["documents_per_second"]
    if saved <= 0:
        return [f"{shape['name']}: compiling does not pay"]
    return [f"{shape['name']}: compiling pays from {rows['compiled']['first_run_seconds'] / saved:,.0f} documents on"]


def passed(result: Result) -> bool:
    """Whether every way ran and gave finite vectors, and every shape's claimed one those of plain fp32.

    A decoder is held to it with calm weights: with fresh ones plain bf16 itself does not pass.
    """
    whole = not any(shape["failed"] for shape in result["shapes"])
    finite = all(row["finite"] for shape in result["shapes"] for row in shape["rows"])
    held = [shape.get("calm") if shape["decoder"] else claimed(shape) for shape in result["shapes"]]
    return whole and finite and all(row and row["cosine_with_fp32"]["least"] >= LEAST_COSINE for row in held)


def page(result: Result) -> str:
    """Remarks and tables."""
    return "\n".join([*(f"- {line}" for line in remarks(result)), "", table(result)])


def print_merged(paths: list[Path], out: Path | None) -> int:
    """Write the tables of several runs to stdout; 1 where a part is missing or a vector is off."""
    parts, wrong = load(paths)
    for line in wrong:
        print(line, file=sys.stderr)
    try:
        result = merge(parts)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    save(result, out)
    print(page(result))
    return int(bool(wrong) or not passed(result))
