"""The stateful test of the embedded engine, on the cluster engine and a real server."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from naive import NaiveEngine
from test_stateful import _PACE, DIMENSION, Against

from milvus_server import new_address as milvus_address
from postgres_server import new_address
from suwen.index.cluster.engine import ClusterEngine


class AgainstCluster(Against):
    """The same rules; folders aside, an index is an index."""

    new_address = staticmethod(new_address)

    @initialize(seed=st.integers(0, 2**16))
    def create(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.address = self.new_address()
        self.writer = ClusterEngine.create(self.address, space="sp-test", dimension=DIMENSION)
        self.reader = ClusterEngine.open(self.address)
        self.model = NaiveEngine("sp-test", DIMENSION)
        self.turn = 0

    @rule(order=st.booleans())
    def reopen(self, order: bool) -> None:
        if order:
            self.reader.close()
        self.writer.close()
        self.writer = ClusterEngine.open(self.address, write=True)
        if order:
            self.reader = ClusterEngine.open(self.address)
        assert not self.writer.healed

    def teardown(self) -> None:
        if hasattr(self, "model"):
            assert self.writer.verify() == []
            self.reader.close()
            self.writer.close()


class AgainstMilvus(AgainstCluster):
    """The same with a searcher outside the database."""

    new_address = staticmethod(milvus_address)


class AgainstRewrite(AgainstCluster):
    """The same with the other form of milvus-lite."""

    new_address = staticmethod(partial(milvus_address, "3.2.2"))


TestCluster = AgainstCluster.TestCase
TestCluster.settings = settings(_PACE, max_examples=6)
TestMilvus = AgainstMilvus.TestCase
TestMilvus.settings = settings(_PACE, max_examples=4)
TestRewrite = pytest.mark.long(AgainstRewrite.TestCase)
TestRewrite.settings = settings(_PACE, max_examples=2)
del Against, AgainstCluster, AgainstMilvus, AgainstRewrite
