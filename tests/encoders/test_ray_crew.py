"""What is said about a Ray cluster before one is asked; tests/real/test_encode_on_ray.py has real ones."""

from __future__ import annotations

import sys

import pytest

from suwen.encoders.ray_crew import RayCrew, RayError, parse_place


@pytest.mark.parametrize(
    ("text", "address"), [("ray", None), ("ray:10.0.0.7:6379", "10.0.0.7:6379"), ("ray:[::1]:6379", "[::1]:6379")]
)
def test_a_place_is_ray_here_or_the_head_of_a_cluster(text, address):
    assert parse_place(text) == address


@pytest.mark.parametrize("text", ["", "rays", "ray:", "ray:host", "ray:host:", "ray:host:port", "dask:host:1"])
def test_any_other_place_is_refused(text):
    with pytest.raises(RayError, match="ray:HOST:PORT"):
        parse_place(text)


def test_the_client_proxy_is_refused_by_name():
    with pytest.raises(RayError, match="proxy"):
        parse_place("ray://10.0.0.7:10001")


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RayError, match=r"pip install 'suwen\[ray\]'"):
        RayCrew(1)


def test_a_cluster_of_others_needs_a_token(monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(RayError, match="RAY_AUTH_MODE=token"):
        RayCrew(1, address="192.0.2.1:6379")
