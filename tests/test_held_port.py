"""A held port is for the server that is told of it, again and again, and for nobody else."""

from __future__ import annotations

import socket
import sys

import pytest

from held_port import held_port


def listen_and_answer(port: int) -> None:
    """A server as ours are, with a client that it has answered: what is left of that may not be in the way."""
    with (
        socket.create_server(("127.0.0.1", port)) as server,
        socket.create_connection(("127.0.0.1", port), timeout=60) as client,
    ):
        taken, _ = server.accept()
        with taken:
            taken.sendall(b"x")
        assert client.recv(1) == b"x"


def test_a_server_may_listen_on_it_and_come_back() -> None:
    with held_port() as port:
        listen_and_answer(port)
        listen_and_answer(port)


def test_nobody_else_gets_it_before_the_server_or_while_it_is_away() -> None:
    with held_port() as port, socket.socket() as other:
        if sys.platform == "linux":
            with pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))


def test_two_that_are_held_are_two() -> None:
    with held_port() as one, held_port() as two:
        assert one != two
