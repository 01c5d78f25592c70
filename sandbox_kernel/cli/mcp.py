"""`sandbox-kernel mcp`: a sandbox as tools for a language model's client."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import os
import secrets
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

from ..launcher import POLICY_VARIABLE
from ..quantities import parse_count, parse_seconds
from .stop import Stop

TOKEN_VARIABLE = "SANDBOX_KERNEL_MCP_TOKEN"  # noqa: S105
_TOKEN_CHARS = 16
_MAKE = 'One is made by: python3 -c "import secrets; print(secrets.token_urlsafe(24))"'

DESCRIPTION = """\
Serves Python in a sandbox by the Model Context Protocol: an assistant runs code, puts and gets files, looks at
variables and undoes cells, in sessions that last. What the code may do is said here, by a policy, and by nothing that
a client sends. Without --http the program that starts this one is the client (stdio).
"""

EXAMPLES = f"""\
Over HTTP every request needs a token (Authorization: Bearer TOKEN): that of {TOKEN_VARIABLE}, one of the lines of
--token-file (each is a client of its own), or one that is made up and written to standard error. Each client has
sessions of its own; one that nobody uses ends after --idle. Only loopback addresses are listened on, unless
--allow-remote is given; put a proxy with TLS before it then.

examples:
  sandbox-kernel mcp
  sandbox-kernel mcp --policy ~/policies/assistant.toml --workspace ~/data
  sandbox-kernel mcp --http 127.0.0.1:8765 --token-file ~/tokens

in a client's configuration:
  {{"mcpServers": {{"python": {{"command": "sandbox-kernel", "args": ["mcp"]}}}}}}
(one outside of this environment needs the command's full path, as `command -v sandbox-kernel` prints it)
"""


def add_command(commands: Any) -> None:
    """Add the command to argparse's collection of subparsers."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "mcp",
        help="serve a sandbox to assistants (Model Context Protocol)",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--http", metavar="ADDRESS:PORT", type=_address, help="listen there instead, at the path /mcp "
                        "(port 0: any)")  # fmt: skip
    parser.add_argument("--token-file", metavar="FILE", type=Path, help="tokens of clients, one in each line")
    parser.add_argument("--allow-remote", action="store_true", help="listen on an address that others reach, too")
    parser.add_argument("--policy", metavar="NAME|FILE", help="a preset or a policy file (default: the preset "
                        f"assistant, or what {POLICY_VARIABLE} says)")  # fmt: skip
    parser.add_argument("--workspace", metavar="DIR", type=Path, help="a folder that cells see, as the policy's "
                        "files.workspace says (default: each session has a private one)")  # fmt: skip
    parser.add_argument("--sessions", metavar="N", type=_argument(parse_count, "count"), default=8,
                        help="how many there may be at a time (default: %(default)s)")  # fmt: skip
    parser.add_argument("--idle", metavar="TIME", type=_argument(parse_seconds, "time"), default=1800.0,
                        help="end a session that nobody used for so long (default: 30min)")  # fmt: skip
    parser.add_argument("--text", metavar="N", type=_argument(parse_count, "count"), default=20_000,
                        help="characters of an answer's text; of more head and tail are given "
                        "(default: %(default)s)")  # fmt: skip
    parser.set_defaults(command=mcp)


def mcp(args: argparse.Namespace) -> int:
    """Carry out the command: serves until its client leaves, or a signal comes.

    Raises:
        Stop: the SDK is missing, or the address or the tokens cannot be used.
        SandboxError: the policy cannot be used, or no sandbox can be had here.
    """
    try:
        from ..mcp import server
        from ..mcp.sessions import Sessions
        from ..mcp.tools import Tools
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("mcp", "mcp_types", "uvicorn", "starlette"):
            raise
        raise Stop(
            "`mcp` needs the protocol's SDK, which is not installed. Install the extra `mcp`: "
            "pip install '.[mcp]' in the project's folder"
        ) from error
    from ..api import AsyncSandbox

    if args.workspace is not None and not args.workspace.is_dir():
        raise Stop(f"The workspace {args.workspace} is no folder.")
    policy = args.policy or (None if os.environ.get(POLICY_VARIABLE) else "assistant")
    make = partial(AsyncSandbox, policy, workspace=args.workspace)
    make()  # a policy that cannot be used is told before anything else
    sessions = Sessions(make, most=args.sessions, idle_s=args.idle)
    tools = Tools(sessions, text_chars=max(1000, args.text))
    if args.http is None:
        if args.token_file is not None:
            raise Stop("--token-file is for --http: over stdio the program that starts this one is the client.")
        asyncio.run(server.serve_stdio(tools, sessions))
        return 0
    with contextlib.closing(_listener(*args.http, remote=args.allow_remote)) as listener:
        tokens, made_up = _tokens(args.token_file)
        host, port = listener.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}{server.PATH}"

        def ready() -> None:
            told = f" token: {tokens[0]}" if made_up else ""
            sys.stderr.write(f"sandbox-kernel: listening on {url}{told}\n")
            sys.stderr.flush()

        asyncio.run(server.serve_http(
            tools, sessions, listener, tokens, idle_s=args.idle, most=args.sessions,
            remote=not _is_loopback(host), ready=ready,
        ))  # fmt: skip
    return 0


def _tokens(file: Path | None) -> tuple[list[str], bool]:
    """The tokens, and whether they are made up."""
    # Whatever this process starts has no need of it.
    given = os.environ.pop(TOKEN_VARIABLE, "")
    if file is not None:
        try:
            found = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise Stop(f"The token file {file} cannot be read: {why}. {_MAKE}") from error
        tokens = [line for line in found if line and not line.startswith("#")]
        where = str(file)
    else:
        tokens, where = [given] if given else [secrets.token_urlsafe(24)], TOKEN_VARIABLE
    if not tokens:
        raise Stop(f"There is no token in {where}. {_MAKE}")
    if any(len(token) < _TOKEN_CHARS for token in tokens):
        raise Stop(f"A token in {where} has less than {_TOKEN_CHARS} characters, and could be guessed. {_MAKE}")
    return tokens, file is None and not given


def _listener(host: str, port: int, *, remote: bool) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        address = str(found[4][0])
        if not remote and not _is_loopback(address):
            raise Stop(f"{host} can be reached from other machines. Code would run here for whoever has the token, and "
                       "it travels in the clear: listen on 127.0.0.1, or say --allow-remote.")  # fmt: skip
        return socket.create_server((address, port), family=found[0])
    except (OSError, OverflowError, UnicodeError) as error:
        raise Stop(f"{host}:{port} cannot be listened on: {error}") from error


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _address(text: str) -> tuple[str, int]:
    """A host and a port, for argparse."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no address such as 127.0.0.1:8765")
    return host.strip("[]") or "127.0.0.1", int(port)


def _argument(parse: Any, what: str) -> Any:
    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} as a {what} {error}") from None

    return convert
