"""`roformer serve` as an application of Ray Serve: a server in each replica, behind a Unix socket."""

import base64
import os
import subprocess
import tempfile
import time
from typing import Any

import numpy as np

from .. import _checks, _child, _library
from . import _cluster

_WHERE = "serve"
# Options that the deployment sets.
_NOT_OPTIONS = {"host", "model", "port", "quiet", "threads", "tls_cert", "tls_key", "unix_socket"}
# Headers of one connection, and headers that the client of the Unix socket sets.
_OF_CONNECTIONS = {"connection", "content-length", "expect", "host", "keep-alive", "te", "transfer-encoding", "upgrade"}


def serve(
    model: str | os.PathLike,
    *,
    min_replicas: int = 1,
    max_replicas: int = 4,
    requests_per_replica: int = 32,
    cpus_per_replica: int = 1,
    **options: Any,
) -> Any:
    """An application for ``ray.serve.run``: the routes of `roformer serve` (docs/server.md) on a cluster of Ray.

    Ray starts more replicas while requests wait, and ends those that are not needed. Each runs `roformer serve`, so a
    vector has the bits of one server. Other deployments call ``handle.embed.remote(texts)``.

    Args:
        model: the model directory, at a path that all machines have.
        min_replicas: that always run.
        max_replicas: that run at most.
        requests_per_replica: unfinished requests of a replica, on average, from which on Ray starts another.
        cpus_per_replica: threads of each.
        **options: of `roformer serve`, such as ``precision`` or ``max_memory``, except where it listens.

    Returns:
        A ``ray.serve.Application``.

    Raises:
        ValueError, TypeError: an argument breaks a rule.
        FileNotFoundError: the model directory does not exist.
        ImportError: Ray Serve, or the program, is not there.
    """
    ray = _cluster.load(_WHERE, "ray.serve")
    least = _checks.integer(_WHERE, "min_replicas", min_replicas, 0)
    most = _checks.integer(_WHERE, "max_replicas", max_replicas, max(1, least))
    requests = _checks.integer(_WHERE, "requests_per_replica", requests_per_replica, 1)
    threads = _checks.integer(_WHERE, "cpus_per_replica", cpus_per_replica, 1, 1025)
    if given := _NOT_OPTIONS & options.keys():
        raise TypeError(f"[{_WHERE}] options must not say where the server listens or what it runs, got {min(given)}")
    model = os.path.abspath(_checks.directory(_WHERE, model))  # noqa: PTH100 - a worker has another directory
    _library.program()
    deployment = ray.serve.deployment(
        Server,
        name="roformer",
        ray_actor_options={"num_cpus": threads},
        max_ongoing_requests=4 * requests,
        health_check_period_s=2,
        autoscaling_config={"min_replicas": least, "max_replicas": most, "target_ongoing_requests": requests},
    )
    return deployment.bind(["--model", model, "--threads", str(threads), *_child.options(_WHERE, options)])


class Server:
    """The state of a replica: the program, which ends with it."""

    def __init__(self, arguments: list[str]):
        self._folder = tempfile.TemporaryDirectory(prefix="roformer-")
        self._socket = f"{self._folder.name}/socket"
        self._client = None
        program = _library.program()
        with open(f"{self._folder.name}/messages", "wb") as messages:  # noqa: PTH123
            self._process = subprocess.Popen(
                [program, "serve", *arguments, "--quiet", "--unix-socket", self._socket],
                stdin=subprocess.DEVNULL,
                stderr=messages,
                env={**_library.program_environment(program), "ROFORMER_PARENT": str(os.getpid())},
                start_new_session=True,
            )
        while not os.path.exists(self._socket):  # noqa: PTH110
            self.check_health()
            time.sleep(0.01)

    def check_health(self) -> None:
        """Ray replaces a replica whose program has ended."""
        if self._process.poll() is not None:
            with open(f"{self._folder.name}/messages", errors="replace") as messages:  # noqa: PTH123
                raise RuntimeError(f"[{_WHERE}] the server must run, got its end: {messages.read()[-2000:].strip()}")

    def __del__(self):
        if hasattr(self, "_process"):
            self._process.terminate()
            self._process.wait()

    async def _ask(self, method: str, path: str, **request: Any) -> Any:
        import aiohttp

        if self._client is None:
            connector = aiohttp.UnixConnector(self._socket, limit=0)
            self._client = aiohttp.ClientSession(
                "http://roformer", connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout()
            )
        return await self._client.request(method, path, **request)

    async def __call__(self, request: Any) -> Any:
        """Passes on a request, and its reply as it comes."""
        from aiohttp import ClientConnectionError
        from starlette.responses import Response, StreamingResponse

        path = request.scope["path"].removeprefix(request.scope.get("root_path", "").rstrip("/"))
        sent = {name: value for name, value in request.headers.items() if name not in _OF_CONNECTIONS}
        try:
            reply = await self._ask(request.method, path, data=await request.body(), headers=sent)
        except ClientConnectionError:  # the program has ended, and Ray replaces this replica
            return Response(status_code=503, headers={"retry-after": "1"})
        headers = {name.lower(): value for name, value in reply.headers.items()}
        kept = {name: value for name, value in headers.items() if name not in _OF_CONNECTIONS}
        return StreamingResponse(reply.content.iter_any(), status_code=reply.status, headers=kept)

    async def embed(self, texts: list[str]) -> np.ndarray:
        """The vectors of texts, float32 [texts, dimensions], for other deployments."""
        body = {"input": texts, "encoding_format": "base64"}
        async with await self._ask("POST", "/v1/embeddings", json=body) as reply:
            result = await reply.json()
        if "error" in result:
            raise ValueError(f"[{_WHERE}] {result['error']['message']}")
        rows = [np.frombuffer(base64.b64decode(each["embedding"]), np.float32) for each in result["data"]]
        return np.stack(rows)
