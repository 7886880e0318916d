"""Running the service: the socket, uvicorn and its patience with clients, signals. What is answered is in ``app``."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from suwen.service.app import create_app
from suwen.service.holder import Holder
from suwen.service.serve_settings import LOOPBACK, ServeSettings, SettingsProblem

#: The longest head of a request; no client of ours needs a tenth of it.
_LONGEST_HEAD = 64 * 1024
_BACKLOG = 1024


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
    holder = Holder(settings)
    limits = {"slow_seconds": settings.slow_seconds, "most": settings.connections}
    patience = type("Patience", (_Patient,), limits)
    with _bound(settings) as opened:
        server = _Server(
            uvicorn.Config(
                create_app(holder),
                http=patience,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=_BACKLOG,
                timeout_graceful_shutdown=int(settings.stop_seconds) or 1,
            )
        )
        holder.on_failure.append(server.stop)
        if listening:
            listening(_address(opened))
        server.run(sockets=[opened])
    if holder.failure is not None:
        raise holder.failure


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


def _bound(settings: ServeSettings) -> socket.socket:
    host, port = settings.host, settings.port
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
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


class _Server(uvicorn.Server):
    """The server of uvicorn, which a signal ends as it ends any other command: quietly and with exit code 0."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; a second interrupt does not wait for what is under way."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    def stop(self) -> None:
        """Stop, from any thread."""
        self.should_exit = True


class _Patient(HttpToolsProtocol):
    """The protocol of uvicorn, with an end to its patience.

    uvicorn ends connections that idle between two requests. One that never sends a whole head, never ends a body nobody
    waits for, or never reads its answer, would stay for good.
    """

    slow_seconds, most = 20.0, 1000
    _reading: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None
    _in_head, _head = True, 0
    _open: tuple[RequestResponseCycle, ...] = ()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._enough()
        self.resume_writing()
        self._drop()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        # Behind a request that is not answered yet, this would pass for its answer.
        if self._drop():
            self.transport.close()
        else:
            super().send_400_response(msg)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head += len(data)
            if self._head > _LONGEST_HEAD:
                self._hang_up()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head = True, 0
        self._wait()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._enough()
        super().on_headers_complete()
        if self.cycle is not None:
            self._open = (*(cycle for cycle in self._open if not cycle.response_complete), self.cycle)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self.cycle is not None and self.cycle.response_complete:
            self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle is not None and self.cycle.more_body and not self.transport.is_closing():
            self._wait()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writing = self.loop.call_later(self.slow_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _wait(self) -> None:
        self._enough()
        self._reading = self.loop.call_later(self.slow_seconds, self._hang_up)

    def _hang_up(self) -> None:
        self._drop()
        self.transport.close()

    def _drop(self) -> bool:
        """Tell every request that is not answered that nobody listens any more; whether there was one.

        uvicorn tells the last one alone, and those before it fail on a connection that is closed.
        """
        left = [cycle for cycle in self._open if not cycle.response_complete]
        for cycle in left:
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()
        return bool(left)

    def _enough(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
