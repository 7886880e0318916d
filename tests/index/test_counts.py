"""What an index holds, counted: who encoded how much."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from naive import encoded, unit

from suwen.index.counts import encoders
from suwen.index.embedded import EmbeddedEngine


def test_every_encoder_is_counted(made: Callable[..., EmbeddedEngine]) -> None:
    engine = made(documents=3)
    rng = np.random.default_rng(0)
    for id_, name in (("a", "document"), ("b", "zz"), ("c", "Rough")):
        engine.add([encoded(id_, ["一段"], unit(rng, 1, 16))._replace(encoder=name)])
    assert engine.stats().encoders == {"Rough": 1, "document": 1, "static": 6, "zz": 1}
    assert encoders(engine._truth.reader()) == ["Rough", "document", "static", "zz"]
    engine.delete(["b"])
    assert list(engine.stats().encoders) == ["Rough", "document", "static"]


def test_an_empty_index_has_none(made: Callable[..., EmbeddedEngine]) -> None:
    engine = made(documents=0)
    assert engine.stats().encoders == {}
    with engine.snapshot() as snapshot:
        assert snapshot.encoders == []
        assert snapshot.sample(10)[0].tolist() == []
