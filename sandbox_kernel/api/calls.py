"""Requests about values and files, for `core`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

from ..arguments import check_arguments
from ..auditing import Audit, outcome_of_error
from ..errors import ProtocolError, SandboxError
from ..session.denial_text import denial_line
from ..session.denials import Denial, Denials
from ..session.exchange import Outgoing
from ..session.session import Session
from .execution import plain_text
from .recorder import Recorder
from .tools import Modules, Tools, description
from .values import pack, refusal, unpack, variable

_SMALL_BYTES = 16 * 1024


class Calls:
    """What can be asked of a session besides running a cell."""

    _session: Session | None
    _tools: Tools
    _modules: Mapping[str, Mapping[str, Any]]
    _most: int
    _installed: int
    _denials: Denials
    _recorder: Recorder
    _audit: Audit
    _audit_name: str  # of this sandbox among those of the process
    _lines: int
    _untold: list[Denial]  # of calls; they are in the log, and `denied` has not told them yet
    _stale: set[str]  # modules of one cell that a process brought back to life may still have

    def _turn(self) -> AbstractAsyncContextManager[Session]:
        """The session, for the only request at a time."""
        raise NotImplementedError

    async def _ask(
        self, op: str, fields: Mapping[str, Any], timeout: float | None, value: Outgoing | None = None
    ) -> dict[str, Any]:
        """One request; the value goes with it."""
        raise NotImplementedError

    async def _end_worker(self, cause: SandboxError) -> None:
        """Replace the worker; returns when it is gone."""
        raise NotImplementedError

    # ------------------------------------------------------------ for everybody

    @check_arguments
    async def put(self, name: str, value: Any, *, timeout: float | None = None) -> None:
        """Set a variable of the session to a copy of a value of this process.

        Raises:
            FrameRefused: the value is of a type that cannot pass, or too large.
            ValueError: the name cannot be a variable's.
            SandboxError: the worker was lost, or a limit reached.
        """
        variable(name)
        async with self._turn():
            await self._put(name, value, timeout)

    @check_arguments
    async def get(self, name: str, *, timeout: float | None = None) -> Any:
        """A copy of a variable of the session.

        Raises:
            KeyError: there is none of that name.
            FrameRefused: its value is of a type that cannot pass, or too large.
            SandboxError: the worker was lost, or a limit reached.
        """
        variable(name)
        async with self._turn():
            return await self._get({"name": name}, timeout)

    @check_arguments
    async def call(self, function: str, /, *arguments: Any, timeout: float | None = None, **named: Any) -> Any:
        """Call a function of the session, such as ``"f"`` or ``"model.predict"``, with values of this process.

        Coroutine functions are awaited. The arguments are never part of what the session's code can see beforehand.

        Returns:
            a copy of what it returned.

        Raises:
            CellError: it raised.
            FrameRefused: an argument, or what it returned, cannot pass.
            SandboxError: the worker was lost, or a limit reached.
        """
        for name in function.split("."):
            variable(name)
        return await self._call(function, (arguments, named or None), timeout)

    @check_arguments
    async def variables(self, *, timeout: float | None = None) -> dict[str, str]:
        """The variables that cells have made, each with a line about it: ``"DataFrame, 3 rows x 2 columns"``.

        The words are the sandbox's. Modules and names with a leading underscore are left out, and what comes after
        the first 500.
        """
        async with self._turn():
            found = await self._value("variables", {}, timeout)
            if isinstance(found, dict) and all(isinstance(part, str) for pair in found.items() for part in pair):
                return {plain_text(name): plain_text(told) for name, told in found.items()}
            raise await self._junk("a list of variables is none")

    @check_arguments
    async def describe(self, name: str, *, timeout: float | None = None) -> str:
        """Some lines about a variable: of a table its columns, types, gaps and figures, and its first rows.

        The words are the sandbox's; its value stays there.

        Raises:
            KeyError: there is none of that name.
        """
        variable(name)
        async with self._turn():
            told = await self._value("describe", {"name": name}, timeout)
            if isinstance(told, str):
                return plain_text(told)
            raise await self._junk("a description is no text")

    @check_arguments
    async def put_file(self, path: str, data: bytes | str, *, timeout: float | None = None) -> None:
        """Write a file in the sandbox; folders on the way are made.

        Args:
            path: in the sandbox, from the folder that cells start in.
            data: text is written as UTF-8.

        Raises:
            OSError: it cannot be written.
            FrameRefused: it is too large.
        """
        content = data.encode() if isinstance(data, str) else bytes(data)
        async with self._turn():
            await self._value("write_file", {"path": str(path)}, timeout, content)

    @check_arguments
    async def get_file(self, path: str, *, timeout: float | None = None) -> bytes:
        """The content of a file in the sandbox.

        Raises:
            OSError: it cannot be read, see `put_file`.
            FrameRefused: it is too large.
        """
        async with self._turn():
            content = await self._value("read_file", {"path": str(path)}, timeout)
            if isinstance(content, bytes):
                return content
            raise await self._junk("the content of a file is no bytes")

    @check_arguments
    async def files(self, path: str = ".", *, timeout: float | None = None) -> dict[str, int]:
        """The names in a folder of the sandbox, with the sizes of files in bytes; folders have -1.

        Raises:
            OSError: it cannot be read, see `put_file`.
        """
        async with self._turn():
            found = await self._value("list_files", {"path": str(path)}, timeout)
            match found:
                case list() if all(_is_entry(entry) for entry in found):
                    return dict(found)
            raise await self._junk("a list of files is none")

    def denied(self) -> str:
        """What the sandbox has refused since the last cell, or since this was last asked, in words; "" for nothing."""
        told, self._untold[:] = [*self._untold, *self._denials.take()], []
        return denial_line(told) or ""

    # ------------------------------------------------------------ the audit log

    @contextmanager
    def _audited(self, function: str) -> Iterator[None]:
        """A call runs code of the session as a cell does, so it has a line, too."""
        if not self._audit.wanted:
            yield
            return
        refused = self._audit.refusal()
        if refused is not None:
            raise refused
        began, error = time.monotonic(), None
        try:
            yield
        except BaseException as caught:
            error = caught
            raise
        finally:
            denials = self._denials.take()
            self._untold += denials
            self._audit_line(function, outcome_of_error(error), error, denials, time.monotonic() - began)

    def _audit_line(
        self, code: str, outcome: str, error: BaseException | None, denials: Sequence[Denial], seconds: float
    ) -> None:
        level = self._session.supervisor.level if self._session is not None else ""
        self._lines += 1
        self._audit.note(f"{self._audit_name}-{self._lines}", code, outcome, error=error, level=level, denials=denials,
                         seconds=seconds, removed=self._recorder.gate.take_removed())  # fmt: skip

    # ------------------------------------------------------------ for one turn

    async def _junk(self, problem: str) -> ProtocolError:
        """The worker sent something else than was asked for: it is ended."""
        junk = ProtocolError(problem)
        await self._end_worker(junk)
        return junk

    async def _put(self, name: str, value: Any, timeout: float | None) -> None:
        await self._value("put", {"name": name}, timeout, value)

    async def _call(self, function: str, values: tuple[Any, Any] | Outgoing, timeout: float | None) -> Any:
        """`call`, with the values or packed ones, which belong to this call."""
        try:
            async with self._turn():
                with self._audited(function):
                    return await self._value("call", {"name": function}, timeout, values)
        finally:
            if isinstance(values, Outgoing):
                values.close()  # (again, unless it was never sent)

    async def _put_packed(self, name: str, packed: Outgoing, timeout: float | None) -> None:
        """`put` of a value that the caller has packed; it belongs to this call."""
        try:
            async with self._turn():
                await self._value("put", {"name": name}, timeout, packed)
        finally:
            packed.close()  # (again, unless it was never sent)

    async def _get(self, fields: Mapping[str, Any], timeout: float | None) -> Any:
        return await self._value("get", fields, timeout)

    async def _value(self, op: str, fields: Mapping[str, Any], timeout: float | None, *value: Any) -> Any:
        """Ask with a value or none; the value that came back, or None."""
        outgoing = value[0] if value and isinstance(value[0], Outgoing) else None
        if value and outgoing is None:
            outgoing = await asyncio.to_thread(pack, value[0], self._most)
        reply = await self._ask(op, fields, timeout, outgoing)
        error = refusal(reply, call=op == "call")
        memory = self._session.exchange.take() if self._session is not None else None
        if error is not None:
            raise error
        if memory is None:
            return None
        try:
            if len(memory) <= _SMALL_BYTES and "pandas" in sys.modules:
                return unpack(memory, self._most)  # a thread costs more; whatever these bytes say, it is soon read
            return await asyncio.to_thread(unpack, memory, self._most)
        except ProtocolError as broken:
            await self._end_worker(broken)
            raise

    async def _install(self, session: Session) -> None:
        """Make the sandbox's modules known to a worker that does not have them yet."""
        worker, ready = session.supervisor.worker, session.supervisor.ready
        if worker is None or not ready or worker.number != self._installed:
            worker = await session.supervisor.get_worker(stoppable=False)
        if worker.number != self._installed:
            if self._modules or self._stale:
                await self._tell_modules(self._modules, sorted(self._stale))
            self._installed, self._stale = worker.number, set()

    async def _tell_modules(self, modules: Mapping[str, Mapping[str, Any]], remove: Sequence[str]) -> None:
        told, values = description(modules)
        await self._value("modules", {"add": told, "remove": list(remove)}, None, values)

    @asynccontextmanager
    async def _more_modules(self, modules: Modules) -> AsyncIterator[None]:
        """Further modules for one cell."""
        if not modules:
            yield
            return
        await self._tell_modules(modules, ())
        self._tools.push(modules)
        try:
            yield
        finally:
            self._tools.pop()
            session = self._session
            worker = session.supervisor.worker if session is not None else None
            self._stale |= modules.keys() - self._modules.keys()
            if worker is not None and worker.number == self._installed:
                again = {name: self._modules[name] for name in modules if name in self._modules}
                await self._tell_modules(again, list(modules))
                self._stale -= modules.keys()


def _is_entry(entry: Any) -> bool:
    match entry:
        case (str(), int()):
            return True
    return False
