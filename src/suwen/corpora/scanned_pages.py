"""Reading a picture of a page with rapidocr, Chinese and English: words with their places. Renders nothing."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Any

from suwen.corpora.files import CorpusError
from suwen.text.page_layout import Word

if TYPE_CHECKING:
    from PIL.Image import Image

#: What is read with less certainty than this is mostly a figure's lines and shadows.
_CERTAIN = 0.5
#: Points of a picture's height that stand for a page's: lengths are only ever compared with each other.
_HEIGHT = 842.0


def scan_reader() -> Callable[[Image], tuple[list[Word], float]]:
    """Load the models; gives a function from a picture to its words and its height in points.

    Raises:
        CorpusError: rapidocr is not installed.
    """
    try:
        import logging

        from rapidocr import RapidOCR
    except ImportError:
        raise CorpusError("this page is a scan: pip install 'suwen[ocr]' to have it read") from None
    logging.getLogger("RapidOCR").setLevel(logging.ERROR)
    engine = RapidOCR(params={"Global.log_level": "error", "EngineConfig.onnxruntime.intra_op_num_threads": 1})

    def read(picture: Image) -> tuple[list[Word], float]:
        found = _read(engine, picture)
        if _lies_on_its_side(found):
            # Which side is up is not known: the reading that is surer is the right one.
            found = max((_read(engine, picture.rotate(turn, expand=True)) for turn in (90, 270)), key=_certainty)
        return [word for word, _ in found], _HEIGHT

    return read


def _read(engine: Any, picture: Image) -> list[tuple[Word, float]]:
    import numpy as np

    result = engine(np.asarray(picture)[:, :, ::-1])  # it wants blue first
    if result.boxes is None:
        return []
    scale = _HEIGHT / picture.height
    found = []
    for corners, text, certain in zip(result.boxes, result.txts, result.scores, strict=True):
        if certain >= _CERTAIN and text.strip():
            xs, ys = sorted(float(x) * scale for x, _ in corners), sorted(float(y) * scale for _, y in corners)
            # The means of both sides: a line that rises is not as high as its corners say.
            top, bottom = (ys[0] + ys[1]) / 2, (ys[2] + ys[3]) / 2
            tilt = abs(float(corners[1][1] - corners[0][1])) * scale
            size = max(1.0, bottom - top - tilt)
            middle = (top + bottom) / 2
            word = Word(text.strip(), xs[0], middle - size / 2, xs[3], middle + size / 2, size)
            found.append((word, float(certain)))
    return found


def _certainty(found: list[tuple[Word, float]]) -> float:
    return sum(certain * len(word.text) for word, certain in found)


def _lies_on_its_side(found: list[tuple[Word, float]]) -> bool:
    long = [word for word, _ in found if len(word.text) > 2]
    return len(long) > 2 and median((word.right - word.left) / (word.bottom - word.top) for word in long) < 1
