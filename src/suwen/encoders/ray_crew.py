"""A crew of Ray actors on the machines of a cluster (extra ``ray``). What a crew does is in ``crew``.

Actors over the shards that exist, joined by address. Not Ray Data, which hung where actors left no whole CPU for its
reading; not the ``ray://`` proxy, which failed to start under load.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from suwen.encoders.crew import Crew, Worker, encode_shard, load_own
from suwen.encoders.document import DescribedEncoder, EncoderSettings
from suwen.encoders.shards import Shard
from suwen.errors import SuwenError


class RayError(SuwenError):
    """A cluster that cannot be used as it is."""


def parse_place(text: str) -> str | None:
    """The address in ``ray`` (None: a cluster on this machine, for this run) or ``ray:HOST:PORT``.

    >>> parse_place("ray:10.0.0.7:6379")
    '10.0.0.7:6379'

    Raises:
        RayError: It is neither.
    """
    kind, _, address = text.partition(":")
    host, colon, port = address.rpartition(":")
    if address.startswith("//"):
        raise RayError(f"{text!r} is the address of Ray's client proxy: give the head's own, as ray:HOST:6379")
    if kind != "ray" or (text != "ray" and not (host and colon and port.isdigit())):
        raise RayError(f"--on takes ray (on this machine) or ray:HOST:PORT (the head of a cluster), not {text!r}")
    return address or None


class RayCrew(Crew):
    """Actors of a Ray cluster, one core each.

    Args:
        size: How many. Where fewer have room, those begin; the others follow when there is room.
        address: ``HOST:PORT`` of the cluster's head; by default a cluster is started here for this run.
        gpus: GPUs of each; by default one where the cluster has any, and none elsewhere.

    Raises:
        RayError: Ray is not installed, the cluster does not answer, accepts calls without a token from beyond its
            machine, or has no such machine.
    """

    def __init__(self, size: int, *, address: str | None = None, gpus: float | None = None) -> None:
        self._ray = ray = _import_ray()
        self.size, self._own = size, not ray.is_initialized()
        errors = ray.exceptions
        self.lost = (errors.RayActorError, errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError)
        if self._own:
            _connect(ray, address, size)
        try:
            self._gpus = _check_room(ray, gpus)
        except RayError:
            self.close()
            raise

    def hire(self, number: int, encoder: DescribedEncoder) -> Worker:
        """An actor that has not begun; it waits where there is no room for it."""
        return _ActorWorker(self._ray, self._gpus, encoder._replace(settings=_absolute(encoder.settings)))

    def close(self) -> None:
        """Leave the cluster, if this crew has joined it."""
        if self._own:
            self._ray.shutdown()


class _Encoding:
    """What an actor does: the same as a process of this machine."""

    def start(self, encoder: DescribedEncoder, device: str | None) -> Any:
        return load_own(encoder, device)

    def encode(self, shard: Shard, folder: Path) -> Any:
        return encode_shard(shard, folder)


class _ActorWorker(Worker):
    def __init__(self, ray: Any, gpus: float, encoder: DescribedEncoder) -> None:
        kind = ray.remote(num_cpus=1, num_gpus=gpus, scheduling_strategy="SPREAD")(_Encoding)
        self._ray, self._actor = ray, kind.remote()
        # Ray shows an actor the GPUs it was given, and no others; one that was given none may see all.
        self._given = (encoder, encoder.settings.device or (None if gpus else "cpu"))

    def start(self) -> Future[Any]:
        future: Future[Any] = self._actor.start.remote(*self._given).future()
        return future

    def encode(self, shard: Shard, folder: Path) -> Future[Any]:
        future: Future[Any] = self._actor.encode.remote(shard, folder.resolve()).future()
        return future

    def end(self) -> None:
        self._ray.kill(self._actor)


def _import_ray() -> Any:
    # Read as it is imported. Ray reports to its makers unless it is told not to.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise RayError("encoding on a cluster needs Ray on every machine: pip install 'suwen[ray]'") from None
    return ray


def _connect(ray: Any, address: str | None, size: int) -> None:
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is None:
        ray.init(address="local", num_cpus=size, include_dashboard=False, **quiet)
        return
    if not _is_loopback(address.rpartition(":")[0]):
        _require_token(address)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as problem:
        raise RayError(
            f"no Ray cluster at {address} lets this process in ({str(problem).strip().splitlines()[0]}): check the "
            f"address, that `ray start --head` runs there, that Ray is {ray.__version__} on both sides, and the token"
        ) from problem
    machines = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    if any(not _is_loopback(machine) for machine in machines):
        try:
            _require_token(address)
        except RayError:
            ray.shutdown()
            raise


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _require_token(address: str) -> None:
    """Refuse a cluster that others can reach and that runs whatever code they send."""
    how = (
        "make one with `ray get-auth-token --generate`, copy it to every machine, and set RAY_AUTH_MODE=token for "
        "`ray start` on each of them and here"
    )
    if os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
        raise RayError(f"{address} is not on the loopback, and this process uses no token: {how}")
    asked = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    without = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    if subprocess.run(asked, env=without, capture_output=True, check=False).returncode == 0:
        raise RayError(f"the cluster at {address} lets in who has no token, and runs any code it is sent: {how}")


def _check_room(ray: Any, gpus: float | None) -> float:
    """The GPUs of a worker, where a machine has as many."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most = max((float(machine.get("GPU", 0)) for machine in machines), default=0.0)
    if gpus is None:
        return min(most, 1.0)
    if gpus > most:
        raise RayError(
            f"no machine of the cluster has {gpus:g} GPUs (the most is {most:g}): lower --gpus-per-worker, or start "
            f"Ray where the GPUs are"
        )
    return gpus


def _absolute(settings: EncoderSettings) -> EncoderSettings:
    """The same paths wherever a worker starts; the id of a model on a hub stays as it is."""
    paths = {key: getattr(settings, key) for key in ("path", "base", "probe")}
    found: dict[str, Any] = {}
    for key, path in paths.items():
        if path and Path(path).exists():
            found[key] = str(Path(path).resolve())
    return settings._replace(**found)
