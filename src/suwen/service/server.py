"""Running the service: the socket, uvicorn, signals. What is answered is in ``app``."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from suwen.index.opening import index_exists, open_engine
from suwen.service.app import create_app, entrance
from suwen.service.connections import Crowd, PatientProtocol
from suwen.service.holder import Holder
from suwen.service.indexes import Indexes
from suwen.service.serve_settings import LOOPBACK, ServeSettings, SettingsProblem
from suwen.service.worker_processes import ReadingProcesses

log = logging.getLogger("suwen.service")
_BACKLOG = 1024
#: Seconds a thread that computes may keep the others waiting.
_SWITCH = 0.0005


def serve(settings: ServeSettings, listening: Callable[[str], None] | None = None) -> None:
    """Serve an index until SIGTERM or SIGINT, then finish what was accepted.

    Args:
        settings: How.
        listening: Called with the address once connections are taken; the index may still be loading then.

    Raises:
        SettingsProblem: The service cannot be started like this.
        SuwenError: The index cannot be opened.
    """
    settings = _guarded(settings)
    _require_indexes(settings)
    indexes = Indexes(Holder(settings))
    holder = indexes.first
    server = make_server(entrance(create_app(indexes)), holder)
    named = [indexes.find(name).holder for name in sorted(indexes.named)]
    with ExitStack() as open_ones:
        opened = open_ones.enter_context(_bound(settings))
        sockets = [opened]
        if settings.workers > 1:
            sockets.append(open_ones.enter_context(socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)))
            readers = ReadingProcesses(settings, *sockets)
            open_ones.callback(lambda: readers.join(holder.seconds_left()))
            # Not before: opening for writing may repair what they would read.
            holder.on_open.append(lambda _: readers.start())
            server.on_exit.append(readers.end)
        for one in named:
            one.on_failure.append(server.stop)
        if listening:
            listening(_address(opened))
        server.run(sockets=sockets)
    if holder.closed:
        server.ended.set()
    for one in named:
        if one.failure is not None:
            raise one.failure
    if server.told and holder.closed and not settings.traces:
        # All is stored and closed. What Python tidies up at its end takes seconds on a busy machine, which are not
        # left: nobody would see to the end of that. Spans are sent there.
        _end()


def _end() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


def make_server(app: ASGIApp, holder: Holder) -> Server:
    """The server of an application, as its holder's settings have it."""
    settings = holder.settings
    crowd = Crowd(settings.connections, settings.address_connections or max(1, settings.connections // 2))
    patience = type("Patience", (PatientProtocol,), {"slow_seconds": settings.slow_seconds, "crowd": crowd})
    # The loop has little to do for a request, but several times: by default a search that computes keeps it waiting for
    # 5 ms each time, and with it everybody.
    sys.setswitchinterval(_SWITCH)
    config = uvicorn.Config(
        app,
        interface="asgi3",
        http=patience,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        # Half of it is for what was accepted; then it is told to end, which takes a moment.
        timeout_graceful_shutdown=max(1, int(0.8 * settings.stop_seconds)),
    )
    return Server(config, holder)


def _guarded(settings: ServeSettings) -> ServeSettings:
    """The settings, unless they would open the index to strangers."""
    if settings.keys is not None:
        return settings
    if settings.public:
        raise SettingsProblem(
            f"{settings.host} can be reached by others, and no keys are configured: make one with 'suwen key new "
            "--name NAME --role write --file keys.toml' and start with --keys keys.toml, or listen on 127.0.0.1"
        )
    # Without keys, a page of another site could reach this machine by a name of its own that points here.
    return settings.model_copy(update={"hosts": settings.hosts or tuple(dict.fromkeys([*LOOPBACK, settings.host]))})


def _require_indexes(settings: ServeSettings) -> None:
    """Refuse an index that is not there: nobody should be told that it is served."""
    for address in (settings.index, *(entry.index for entry in settings.indexes.values())):
        if not index_exists(address):
            open_engine(address, repair=False).close()  # it says what is there instead, and what to do


def _bound(settings: ServeSettings) -> socket.socket:
    host, port = settings.host, settings.port
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG, reuse_port=settings.workers > 1)
    except socket.gaierror as problem:
        raise SettingsProblem(f"the host {host!r} is not an address of this machine: give one with --host") from problem
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            why = "is in use: stop the server that has it, or choose another with --port"
        elif problem.errno == errno.EACCES:
            why = "may not be taken by this user: choose one above 1023 with --port"
        else:
            why = f"cannot be listened on ({problem.strerror}): choose another --host or --port"
        raise SettingsProblem(f"port {port} of {host} {why}") from problem


def _address(opened: socket.socket) -> str:
    host, port = opened.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """The server of uvicorn, which a signal ends as it ends any command: quietly, in time and with exit code 0."""

    def __init__(self, config: uvicorn.Config, holder: Holder) -> None:
        super().__init__(config)
        self._holder = holder
        self.ended = threading.Event()
        #: Whether a signal said to stop.
        self.told = False
        #: Called when a signal says to stop, in its handler.
        self.on_exit: list[Callable[[], None]] = []

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; a second interrupt does not wait for what is under way."""
        if not self.should_exit:
            self.told = True
            self._holder.end()
            for end in self.on_exit:
                end()
            threading.Thread(target=self._see_to_the_end, daemon=True, name="suwen-end").start()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    def stop(self) -> None:
        """Stop, from any thread."""
        self.should_exit = True

    def _see_to_the_end(self) -> None:
        """End the process when the time is up, whatever holds it: a text being encoded knows no signal.

        An answer is sent once what it says is on the disk, and a kill at any moment leaves the index whole.
        """
        if not self.ended.wait(self._holder.seconds_left()):
            log.error("what was under way did not end in time, and is left: what was acknowledged is stored")
            _end()
