"""Programs that need no start: a process that has everything imported forks a child for each command it is sent.

A ``suwen`` of its own takes a second to start, and five more where it needs torch; the checks run hundreds. The folder
``WarmStart.programs`` holds two stand-ins that hand their arguments, folder, environment and streams to the server and
end as its child ends: ``suwen``, and ``python`` for ``-c CODE`` or a file. What a start loads, and that nothing heavy
is among it, is checked apart (tests/test_import.py, tests/real/test_wheel.py), with starts of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

#: A program that the shell finds by its name; without site, so that it starts in hundredths of a second.
_STAND_IN = """#!/bin/sh
exec {python} -IS -c '
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
request = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(request).to_bytes(4, "big")], [0, 1, 2])
server.sendall(request)
child = int(server.recv(16) or 0)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: os.kill(child, number))
code = int(server.recv(16) or 255)
if code < 0:
    code in (-signal.SIGINT, -signal.SIGTERM) and signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
' {place} {name} "$@"
"""


class WarmStart:
    """A server of forked programs, and the folder in which their stand-ins are.

    Args:
        folder: A new folder; its path must be short, as it holds a socket.
        preload: What the server imports.
        prefix: A command that the server is started with, as ``unshare -n``.
        environment: Of the server; that of a child is its stand-in's.
    """

    def __init__(
        self,
        folder: Path,
        preload: Sequence[str],
        *,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.programs, place = folder / "bin", folder / "socket"
        self.programs.mkdir(parents=True)
        for name in ("suwen", "python"):
            words = {"python": sys.executable, "place": str(place), "name": name}
            text = _STAND_IN.format(**{key: shlex.quote(word) for key, word in words.items()})
            (self.programs / name).write_text(text, encoding="utf-8")
            (self.programs / name).chmod(0o755)
        command = [*prefix, sys.executable, __file__, str(place), *preload]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._server = subprocess.Popen(command, env=environment, **pipes)
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == b"ready\n", "the server of warm programs did not start"

    @property
    def python(self) -> str:
        """What stands in for ``sys.executable``."""
        return str(self.programs / "python")

    def close(self) -> None:
        """End the server."""
        self._server.kill()
        self._server.communicate()


def _received(connection: socket.socket) -> tuple[list[str], str, dict[str, str]]:
    """A request; its streams become this process's own."""
    size, streams, _, _ = socket.recv_fds(connection, 4, 3)
    for own, stream in enumerate(streams):
        os.dup2(stream, own)
        os.close(stream)
    request, wanted = b"", int.from_bytes(size, "big")
    while len(request) < wanted:
        request += connection.recv(wanted - len(request))
    arguments, folder, environment = json.loads(request)
    return arguments, folder, environment


def _program(arguments: list[str]) -> Callable[[], object]:
    if arguments[0] == "suwen":
        from suwen.cli.main import run

        sys.argv = arguments
        return run
    if arguments[1] == "-c":
        sys.argv = ["-c", *arguments[3:]]
        main = sys.modules["__main__"] = ModuleType("__main__")
        return lambda: exec(compile(arguments[2], "<string>", "exec"), main.__dict__)
    sys.argv = arguments[1:]
    sys.path.insert(0, str(Path(arguments[1]).parent))
    return lambda: runpy.run_path(arguments[1], run_name="__main__")


def _ended(program: Callable[[], object]) -> int:
    """Run a program as the interpreter would; its exit code."""
    code: object = 0
    try:
        program()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return int(code or 0)  # type: ignore[call-overload]


def _answer(connection: socket.socket) -> None:
    """Fork the program that is asked for; tell its number, and how it ended."""
    arguments, folder, environment = _received(connection)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            connection.close()
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            sys.path[1:1] = [one for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one]
            code = _ended(_program(arguments))
        finally:
            os._exit(code)
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(f"{child:>16}".encode())
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(f"{os.waitstatus_to_exitcode(status):>16}".encode())


def serve(place: str, preload: Sequence[str]) -> None:
    """Answer until the standard input ends."""
    for name in preload:
        __import__(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen(64)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while sys.stdin.fileno() not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            try:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                _answer(connection)
            finally:
                os._exit(0)
        connection.close()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
