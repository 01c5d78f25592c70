"""The sandbox for ordinary code: `AsyncSandbox` on a thread of its own that all sandboxes of the process share."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from ..arguments import check_arguments
from ..session.exchange import Outgoing
from .asked import PolicyLike
from .core import AsyncSandbox
from .execution import Execution, Result
from .handover import hand_over
from .tools import Modules
from .values import close_all, pack, variable

T = TypeVar("T")
THREAD = "sandbox-kernel"


class _Loop:
    """An event loop on a daemon thread, there while somebody uses it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._pid = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def acquire(self) -> asyncio.AbstractEventLoop:
        """The loop; each call needs its own `release`."""
        with self._lock:
            if self._pid != os.getpid():  # the first use, or a fork: its parent's thread is not here
                self._users, self.loop, self._pid = 0, None, os.getpid()
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._serve, args=(self.loop,), name=THREAD, daemon=True)
                self._thread.start()
            self._users += 1
            return self.loop

    def release(self) -> None:
        """One user less; without any the thread ends."""
        with self._lock:
            if self._pid != os.getpid() or self.loop is None:
                return
            self._users -= 1
            if self._users:
                return
            loop, thread, self.loop, self._thread = self.loop, self._thread, None, None
        loop.call_soon_threadsafe(loop.stop)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()


_shared = _Loop()


class Sandbox:
    """A confined session whose variables live from one `run_code` to the next. May be used from several threads.

    ``with Sandbox() as sandbox:`` ends it at the end of the block; so does `close`. It is ready when the constructor
    returns. Calls wait for each other: one cell runs at a time. Arguments are those of `AsyncSandbox`.

    Raises:
        PolicyError: the policy cannot be used.
        IsolationUnavailable: the level cannot be had here, or an attempt showed that it does not hold.
    """

    @check_arguments
    def __init__(
        self, policy: PolicyLike = "assistant", *, level: str | None = None, workspace: str | Path | None = None,
        timeout: float | None = None, modules: Modules | None = None,
    ) -> None:  # fmt: skip
        self._box = AsyncSandbox(policy, level=level, workspace=workspace, timeout=timeout, modules=modules)
        self._lock, self._ended = threading.Lock(), False
        self._forks: weakref.WeakSet[Sandbox] = weakref.WeakSet()
        self._first = True
        self._loop = _shared.acquire()
        try:
            self._wait(self._box.start())
        except BaseException:
            self.close()
            raise

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if threading.current_thread().name == THREAD:
            work.close()
            raise RuntimeError("a coroutine that the sandbox runs must not wait for the sandbox")
        if self._ended:
            work.close()
            raise RuntimeError("this sandbox is closed")
        return hand_over(work, self._loop)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._result(self._begin(work))

    def _handed(self, packed: Outgoing, work: Coroutine[Any, Any, T]) -> T:
        """The result of work that owns a packed value from its beginning on."""
        try:
            future = self._begin(work)
        except BaseException:
            packed.close()
            raise
        return self._result(future)

    def _packed(self, values: Mapping[str, Any]) -> dict[str, Outgoing]:
        """Variables to set, packed here as for `put`; whoever is given them closes them."""
        for name in values:
            variable(name)
        packed: dict[str, Outgoing] = {}
        try:
            for name, value in values.items():
                packed[name] = pack(value, self._box._most)
        except BaseException:
            close_all(packed)
            raise
        return packed

    @staticmethod
    def _result(future: Future[T]) -> T:
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C in this thread; else it is done
            raise

    def close(self) -> None:
        """End it with everything inside, branches too; idempotent. A cell that runs ends with `WorkerLost`."""
        with self._lock:
            if self._ended:
                return
            try:
                self._wait(self._box.close())
            finally:
                self._ended = True
                _shared.release()
        for branch in list(self._forks) if self._first else ():
            branch.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self._ended or self._box.closed

    @check_arguments
    def run_code(
        self, code: str, *, timeout: float | None = None, inputs: Mapping[str, Any] | None = None,
        returns: Iterable[str] = (), modules: Modules | None = None, on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None, on_result: Callable[[Result], Any] | None = None,
    ) -> Execution:  # fmt: skip
        """Run a cell and wait for its end, see `AsyncSandbox.run_code`.

        The callbacks are called in this thread; what one raises ends the cell and is raised here. So does Ctrl-C.
        """
        calls: dict[str, Callable[[Any], Any] | None] = {"stdout": on_stdout, "stderr": on_stderr, "result": on_result}
        heard: queue.SimpleQueue[tuple[str, Any] | None] = queue.SimpleQueue()

        def emit(kind: str, value: Any) -> None:
            if calls[kind] is not None:
                heard.put((kind, value))

        packed = self._packed(inputs or {})
        try:
            future = self._begin(self._box._run(code, timeout, packed, tuple(returns), modules or {}, emit))
        except BaseException:
            close_all(packed)
            raise
        future.add_done_callback(lambda _: heard.put(None))
        try:
            while (item := heard.get()) is not None:
                callback = calls[item[0]]
                if callback is not None:
                    callback(item[1])
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def interrupt(self) -> None:
        """Interrupt the cell that runs, as Ctrl-C does; a second time its process is ended after a grace time."""
        self._wait(self._box.interrupt())

    def restart(self) -> None:
        """Replace the process of the session: all its variables are gone. A cell that runs ends with `WorkerLost`."""
        self._wait(self._box.restart())

    def rollback(self, to: int | str = 1) -> None:
        """Undo the last cells, or go back to a checkpoint, see `AsyncSandbox.rollback`.

        Raises:
            NoCheckpoint: there is no copy of that state; the error says of which there are.
            ValueError: `to` is a number below 1, or cannot be a name.
        """
        self._wait(self._box.rollback(to))

    def checkpoint(self, name: str) -> None:
        """Keep the state of the session under a name, see `AsyncSandbox.checkpoint`.

        Raises:
            CopyRefused: the session cannot be copied, or there are too many checkpoints.
            ValueError: it cannot be a name.
        """
        self._wait(self._box.checkpoint(name))

    def fork(self) -> Self:
        """A sandbox of its own that begins with the variables of this one, see `AsyncSandbox.fork`.

        Raises:
            CopyRefused: the session has threads, child processes, or a library that cannot be copied.
        """
        branch = object.__new__(type(self))
        branch._box = self._wait(self._box.fork())
        branch._lock, branch._ended = threading.Lock(), False
        branch._forks, branch._first = self._forks, False
        branch._loop = _shared.acquire()
        self._forks.add(branch)
        return branch

    @check_arguments
    def adopt(self, branch: Sandbox) -> None:
        """Go on from the variables of a branch, which is closed, see `AsyncSandbox.adopt`.

        Raises:
            CopyRefused: the branch cannot be copied; both are left as they are.
            ValueError: the two were not forked from the same sandbox.
        """
        self._wait(self._box.adopt(branch._box))
        if branch._box.closed:
            branch.close()

    @check_arguments
    def put(self, name: str, value: Any, *, timeout: float | None = None) -> None:
        """Set a variable of the session to a copy of a value of this process, see `AsyncSandbox.put`."""
        variable(name)
        packed = pack(value, self._box._most)  # here: on the loop it would go through a thread of its own
        self._handed(packed, self._box._put_packed(name, packed, timeout))

    def get(self, name: str, *, timeout: float | None = None) -> Any:
        """A copy of a variable of the session, see `AsyncSandbox.get`."""
        return self._wait(self._box.get(name, timeout=timeout))

    def __setitem__(self, name: str, value: Any) -> None:
        self.put(name, value)

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    @check_arguments
    def call(self, function: str, /, *arguments: Any, timeout: float | None = None, **named: Any) -> Any:
        """Call a function of the session with values of this process, see `AsyncSandbox.call`."""
        for name in function.split("."):
            variable(name)
        packed = pack((arguments, named or None), self._box._most)  # here, as for `put`
        return self._handed(packed, self._box._call(function, packed, timeout))

    def variables(self, *, timeout: float | None = None) -> dict[str, str]:
        """The variables that cells have made, each with a line about it, see `AsyncSandbox.variables`."""
        return self._wait(self._box.variables(timeout=timeout))

    def describe(self, name: str, *, timeout: float | None = None) -> str:
        """Some lines about a variable, such as a table's columns and figures, see `AsyncSandbox.describe`."""
        return self._wait(self._box.describe(name, timeout=timeout))

    def put_file(self, path: str, data: bytes | str, *, timeout: float | None = None) -> None:
        """Write a file in the sandbox, see `AsyncSandbox.put_file`."""
        self._wait(self._box.put_file(path, data, timeout=timeout))

    def get_file(self, path: str, *, timeout: float | None = None) -> bytes:
        """The content of a file in the sandbox, see `AsyncSandbox.get_file`."""
        return self._wait(self._box.get_file(path, timeout=timeout))

    def files(self, path: str = ".", *, timeout: float | None = None) -> dict[str, int]:
        """The names in a folder of the sandbox with their sizes, see `AsyncSandbox.files`."""
        return self._wait(self._box.files(path, timeout=timeout))

    def denied(self) -> str:
        """What the sandbox has refused since the last cell, see `AsyncSandbox.denied`."""
        return self._box.denied()

    def status(self) -> dict[str, Any]:
        """The level, what proves it, the limits, and what is used now. Sizes in bytes."""
        return self._box.status()
