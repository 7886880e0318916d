"""The scripted server of these tests: gone means gone, to clients that kept their connection too."""

from __future__ import annotations

import httpx
import pytest
from server import Server


def test_a_server_that_is_gone_answers_nobody():
    with httpx.Client() as client:
        with Server() as server:
            assert client.get(f"{server.url}/models").status_code == 200
        with pytest.raises(httpx.TransportError):
            client.get(f"{server.url}/models")
