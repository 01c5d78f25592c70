"""The tools by the Model Context Protocol: over this process's own streams, or over HTTP with a token."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import logging
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .. import __version__
from .arguments import FILE_CHARS, description, schema
from .sessions import Caller, Sessions
from .tools import Answer, Tools

PATH = "/mcp"
_OWNER = "sandbox_kernel.owner"
_SESSION = b"mcp-session-id"
_BODY_BYTES = FILE_CHARS * 3 // 2
_INSTRUCTIONS = """\
Python in a sandbox whose variables stay from one run_code to the next. Nothing in it reaches the network or the \
machine's other files. If an answer ends with `session NAME`, pass that name as `session` in the next call to go on \
there.\
"""

_READ_ONLY = frozenset({"get_file", "list_files", "list_variables", "describe_frame"})
_DESTRUCTIVE = frozenset({"rollback", "keep", "reset", "end_session"})

_log = logging.getLogger(__name__)
T = TypeVar("T")
Context = ServerRequestContext[Any, Any]


def build(tools: Tools, sessions: Sessions) -> Server[Any]:
    """The protocol's side of the tools. It starts the first sandbox with itself, and ends all with itself."""
    known = [
        types.Tool(
            name=name, description=description(kind), input_schema=schema(kind),
            annotations=types.ToolAnnotations(
                read_only_hint=name in _READ_ONLY, destructive_hint=name in _DESTRUCTIVE, open_world_hint=False
            ),
        )
        for name, kind in tools.kinds.items()
    ]  # fmt: skip

    @contextlib.asynccontextmanager
    async def lifespan(server: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        try:
            yield {}
        finally:
            await _apart(sessions.close())

    async def list_tools(context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=known)

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in tools.kinds:
            raise MCPError(types.INVALID_PARAMS, f"There is no tool {params.name[:100]!r}.")
        try:
            answer = await _apart(tools.call(_caller(context), params.name, params.arguments or {}))
        except Exception:
            _log.exception("%s failed", params.name)
            answer = Answer("The server failed at this call; its log says why.", failed=True, state="")
        return _result(answer)

    return Server(
        "sandbox-kernel", version=__version__, title="Sandboxed Python", instructions=_INSTRUCTIONS,
        lifespan=lifespan, on_list_tools=list_tools, on_call_tool=call_tool,
    )  # fmt: skip


async def _apart(work: Coroutine[Any, Any, T]) -> T:
    """Await work in a task of its own: the SDK cancels a handler again at each ``await``, also where it cleans up."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        raise


def _caller(context: Context) -> Caller:
    request = context.request
    if request is None:
        return Caller("", "stdio")
    # Since the protocol of 2026-07-28 a request stands for itself, and such a header is anybody's to write.
    handshake = context.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
    return Caller(request.scope[_OWNER], request.headers.get("mcp-session-id", "") if handshake else "")


def _result(answer: Answer) -> types.CallToolResult:
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=answer.text)]
    for kind, data in answer.images:
        content.append(types.ImageContent(type="image", data=base64.b64encode(data).decode(), mime_type=kind))
    if answer.file is not None:
        path, data = answer.file
        resource = types.BlobResourceContents(
            uri=f"sandbox:///{quote(path)}", mime_type="application/octet-stream", blob=base64.b64encode(data).decode()
        )
        content.append(types.EmbeddedResource(type="resource", resource=resource))
    told = {f"sandbox-kernel/{k}": v for k, v in (("session", answer.session), ("state", answer.state)) if v}
    return types.CallToolResult(content=content, is_error=answer.failed, _meta=told or None)


async def serve_stdio(tools: Tools, sessions: Sessions) -> None:
    """Serve the program that started this one, until it closes our standard input.

    Raises:
        SandboxError: no sandbox can be had.
    """
    await sessions.prepare()
    server = build(tools, sessions)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


async def serve_http(
    tools: Tools, sessions: Sessions, listener: socket.socket, tokens: Sequence[str], *, idle_s: float, most: int,
    remote: bool = False, ready: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Serve on a socket until a signal ends it.

    Args:
        tokens: each is a client of its own. A request without one of them is answered 401 and nothing else.
        remote: the address is no loopback one, so requests may call it by any name.
        ready: called when it answers.

    Raises:
        SandboxError: no sandbox can be had.
    """
    await sessions.prepare()
    names = ("127.0.0.1", "localhost", "[::1]")
    app = build(tools, sessions).streamable_http_app(
        streamable_http_path=PATH, max_request_body_size=_BODY_BYTES, session_idle_timeout=idle_s,
        max_sessions=4 * most + 16,
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=not remote,
            allowed_hosts=[*names, *(f"{name}:*" for name in names)],
            allowed_origins=[f"http://{name}:*" for name in names],
        ),
    )  # fmt: skip
    config = uvicorn.Config(
        TokenGate(app, tokens, sessions), log_level="warning", access_log=False, server_header=False,
        timeout_graceful_shutdown=5,
    )  # fmt: skip
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.02)
    if server.started:
        ready()
    await serving


class TokenGate:
    """Lets requests with a token through, and says whose it is."""

    def __init__(self, app: ASGIApp, tokens: Sequence[str], sessions: Sessions) -> None:
        if not tokens or not all(tokens):
            raise ValueError("there must be a token")
        self._app, self._sessions = app, sessions
        self._digests = [hashlib.sha256(token.encode()).digest() for token in tokens]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = dict(scope.get("headers", ()))
        owner = self._owner(headers.get(b"authorization", b""))
        if scope["type"] != "http" or owner is None:
            refusal = PlainTextResponse("A token is needed: Authorization: Bearer TOKEN\n", 401,
                                        {"WWW-Authenticate": "Bearer"})  # fmt: skip
            await refusal(scope, receive, send)
            return

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start" and scope["method"] == "DELETE" and message["status"] == 200:
                self._sessions.leave(Caller(owner, headers.get(_SESSION, b"").decode("latin-1")))
            await send(message)

        await self._app({**scope, _OWNER: owner}, receive, watched)

    def _owner(self, header: bytes) -> str | None:
        kind, _, token = header.partition(b" ")
        digest = hashlib.sha256(token.strip()).digest()
        same = [hmac.compare_digest(digest, known) for known in self._digests]
        return f"token {same.index(True)}" if kind.lower() == b"bearer" and any(same) else None
