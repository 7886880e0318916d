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
#: A page that is read with less certainty on average may stand on its head.
_SURE = 0.85
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
        turns = (90, 270) if _lies_on_its_side(found) else (180,) if _is_doubtful(found) else ()
        # Which side is up is not known: the reading that is surer is the right one.
        others = [_read(engine, picture.rotate(turn, expand=True)) for turn in turns]
        if 90 in turns:
            found = []
        found = max([found, *others], key=_certainty)
        return [word for word, _ in found], _HEIGHT

    return read


def _read(engine: Any, picture: Image) -> list[tuple[Word, float]]:
    import numpy as np

    # It wants blue first. Turning single lines by itself, it would read a page upside down from its last line on.
    result = engine(np.asarray(picture)[:, :, ::-1], use_cls=False)
    if result.boxes is None:
        return []
    scale = _HEIGHT / picture.height
    boxes = np.asarray(result.boxes, dtype=float) * scale
    boxes = _straightened(boxes)
    found = []
    for corners, text, certain in zip(boxes, result.txts, result.scores, strict=True):
        if certain >= _CERTAIN and text.strip():
            left, right = float(corners[[0, 3], 0].mean()), float(corners[[1, 2], 0].mean())
            top, bottom = float(corners[[0, 1], 1].mean()), float(corners[[2, 3], 1].mean())
            found.append((Word(text.strip(), left, top, right, bottom, max(1.0, bottom - top)), float(certain)))
    found.sort(key=lambda one: (one[0].top + one[0].bottom, one[0].left))
    return found


def _straightened(boxes: Any) -> Any:
    """The corners of the boxes as they would be, had the page not lain askew: by the slope of most long lines."""
    import numpy as np

    along = boxes[:, 1] - boxes[:, 0]
    weights = np.hypot(along[:, 0], along[:, 1])
    long = weights >= np.median(weights)
    angle = float(np.median(np.arctan2(along[long, 1], along[long, 0])))
    if not 0.002 < abs(angle) < 0.2:
        return boxes
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return boxes @ turn


def _certainty(found: list[tuple[Word, float]]) -> float:
    return sum(certain * len(word.text) for word, certain in found)


def _is_doubtful(found: list[tuple[Word, float]]) -> bool:
    return bool(found) and _certainty(found) < _SURE * sum(len(word.text) for word, _ in found)


def _lies_on_its_side(found: list[tuple[Word, float]]) -> bool:
    long = [word for word, _ in found if len(word.text) > 2]
    return len(long) > 2 and median((word.right - word.left) / (word.bottom - word.top) for word in long) < 1
