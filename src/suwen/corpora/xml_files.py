"""Records of XML files, one at a time: gigabytes are read in little memory. What records mean is for others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from suwen.corpora.files import CorpusError, open_text


def xml_elements(path: Path, name: str) -> Iterator[tuple[str, ElementTree.Element]]:
    """Yield ``(place, element)`` for every element of a name, whole, whatever its namespace; it is emptied afterwards.

    An element of that name inside another one is part of it: DrugBank's drugs list drugs.

    Raises:
        CorpusError: The file cannot be read, or is not whole.
    """
    depth = number = 0
    root: ElementTree.Element | None = None
    with open_text(path) as file:
        try:
            for event, node in ElementTree.iterparse(file, ("start", "end")):
                root = node if root is None else root
                if node.tag.rpartition("}")[2] != name:
                    continue
                depth += 1 if event == "start" else -1
                if event == "end" and depth == 0:
                    number += 1
                    yield f"{path}: {name} {number}", node
                    node.clear()
                    root.clear()  # it would keep every emptied element
        except ElementTree.ParseError as problem:
            raise CorpusError(f"{path}: not whole XML ({problem}); get it again") from None
