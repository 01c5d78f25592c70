"""The stock ``IPythonKernel`` and ``ZMQInteractiveShell`` without ZeroMQ."""

from __future__ import annotations

import asyncio
import builtins
import contextvars
import getpass
import logging
import os
import signal
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

import ipykernel
import ipykernel.ipkernel
import ipykernel.zmqshell
import IPython.core.completer
import IPython.core.interactiveshell
import IPython.utils.process
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from IPython.core.error import StdinNotImplementedError
from tornado.platform.asyncio import AsyncIOLoop
from traitlets import Any as AnyTrait
from traitlets import default

from . import commands, packages, per_shell
from .completion import IPCompleter
from .history import HistoryManager
from .per_shell import Payloads, PerShell, current_shell
from .printed import note_quickly
from .questions import Questions
from .session import ChannelSession, request_id
from .streams import OutStream


class NoSocket:
    """Stands where ipykernel expects its IOPub socket and its thread; everything goes through the session."""

    @property
    def io_thread(self) -> NoSocket:
        """Itself."""
        return self

    def flush(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""

    def send_multipart(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: raw messages of one's own have no meaning to the front."""


class SignalSafeLoop(AsyncIOLoop):
    """The tornado view of the worker's loop.

    tornado's own `add_callback` takes ``call_soon`` when the loop is running, which does not wake the
    selector. From a signal handler the callback would wait for the next timer (ipython/ipykernel#881).
    """

    def add_callback(self, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Runs `callback` in the next round of the loop, from any thread and from signal handlers."""
        self.asyncio_loop.call_soon_threadsafe(self._run_callback, partial(callback, *args, **kwargs))


class WorkerKernel(IPythonKernel):
    """What differs from stock: where questions go, and how an awaiting cell is interrupted."""

    questions: Questions | None = None
    _asking_shells: set[str] = set()  # noqa: RUF012 - there is one kernel
    _shell_context: Any = PerShell(contextvars.copy_context)
    _allow_stdin: Any = PerShell(lambda: False)

    def _forward_input(self, allow_stdin: bool = False) -> None:
        # Stock saves and restores ``input`` with each cell. Cells of two shells that overlap would save each other's.
        self._allow_stdin = allow_stdin
        self._asking_shells.add(current_shell())
        self._replace_input()

    def _replace_input(self) -> None:
        present, getpass_present = builtins.input, getpass.getpass
        if present != self.raw_input:
            self._sys_raw_input, builtins.input = present, self.raw_input
        if getpass_present != self.getpass:
            self._save_getpass, getpass.getpass = getpass_present, self.getpass

    def _restore_input(self) -> None:
        self._asking_shells.discard(current_shell())
        if not self._asking_shells:
            builtins.input, getpass.getpass = self._sys_raw_input, self._save_getpass
        if self._asking_shells:  # a cell began meanwhile
            self._replace_input()

    def _input_request(self, prompt: Any, ident: Any, parent: Any, password: bool = False) -> str:
        # pdb and friends write their prompt's text first.
        if sys.stdout is not None:
            sys.stdout.flush()
        if sys.stderr is not None:
            sys.stderr.flush()
        assert self.questions is not None  # noqa: S101 - set before the first cell
        try:
            return self.questions.ask(request_id((parent or {}).get("header")), str(prompt), password)
        except (EOFError, KeyboardInterrupt, StdinNotImplementedError) as error:
            raise error.with_traceback(None) from None  # as stock: how we wait is of no use in the cell's traceback

    @contextmanager
    def _dummy_context_manager(self, *args: Any) -> Iterator[None]:
        """While a cell of a subshell awaits: what to cancel for an interrupt."""
        subshell = self.shell_channel_thread.manager.current()
        if subshell is None:
            yield
            return
        subshell.awaiting = args[0]
        try:
            yield
        finally:
            subshell.awaiting = None

    @contextmanager
    def _cancel_on_sigint(self, future: asyncio.Future[Any]) -> Iterator[None]:
        """While a cell awaits: SIGINT cancels it, or interrupts what runs of it right now.

        Stock only cancels, so that blocking code inside a coroutine goes on (ipython/ipykernel#1239). What
        runs is the cell's when its context is: tasks and callbacks have the parent of the cell they are of.
        """
        loop = future.get_loop()
        caller = asyncio.current_task(loop)
        parent_of: Callable[[str], Any] = self.get_parent
        cell = parent_of("shell")

        def interrupt(number: int, frame: FrameType | None) -> None:
            task = asyncio.current_task(loop)
            if parent_of("shell") is not cell or _in_asyncio(frame):
                loop.call_soon_threadsafe(cancel)
            elif task is caller and not future.done():
                # About to wait for the cell: raising here would leave it running on its own.
                loop.call_soon_threadsafe(cancel)
            else:
                if task is None:  # a callback: nobody waits for its exception
                    loop.call_soon_threadsafe(cancel)
                raise KeyboardInterrupt

        def cancel() -> None:
            if not future.done():
                future.cancel()

        interrupt.interrupts_the_cell = True  # type: ignore[attr-defined]
        previous = signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)


def _in_asyncio(frame: FrameType | None) -> bool:
    """Whether an exception would be raised in the event loop's own code, which would then lose a callback."""
    name = "" if frame is None else str(frame.f_globals.get("__name__"))
    return name.partition(".")[0] in {"", "asyncio", "selectors", "weakref", "_weakrefset"}


class WorkerApp(IPKernelApp):
    """Never initialized and never started: %matplotlib, %gui and libraries ask it for its kernel."""

    blocking_class = AnyTrait()

    @default("blocking_class")
    def _blocking_class_default(self) -> Any:
        # Stock has the class's name as the default, and resolves it at once: 30 ms of imports.
        from jupyter_client.blocking.client import BlockingKernelClient

        return BlockingKernelClient


def _without_debugger() -> None:
    # ipykernel.debugger imports debugpy: 60 ms, a warning about frozen modules, and breakpoint() then does
    # nothing at all. The real module is loaded when somebody debugs.
    stub = types.ModuleType("ipykernel.debugger", "Stands here until somebody debugs.")
    stub._is_debugpy_available = False  # type: ignore[attr-defined]
    stub.Debugger = type("Debugger", (), {"__module__": "ipykernel.debugger"})  # type: ignore[attr-defined]
    sys.modules["ipykernel.debugger"] = stub


def _log() -> logging.Logger:
    # ipykernel's remarks about its own working are for an operator's terminal; a worker has none.
    log = logging.getLogger("sandbox_kernel.worker")
    log.addHandler(logging.NullHandler())
    log.propagate = False
    return log


def _sandbox_magic(line: str) -> None:
    """Shows what the sandbox does, `%sandbox help` says more; must stand alone in its cell."""
    sys.stdout.write("%sandbox is answered by the kernel itself, when it stands alone in a cell; in a program that "
                     "runs cells by sandbox_kernel.Sandbox, its status() says as much.\n")  # fmt: skip


def _remember_signature() -> None:
    # Stock reads the signature of the shell's method at each cell, a twentieth of the time of a small one.
    module = cast(Any, ipykernel.ipkernel)
    read = module._accepts_parameters
    known: tuple[object, dict[str, bool]] = (None, {})

    def accepts(method: Any, names: list[str]) -> dict[str, bool]:
        nonlocal known
        function, found = known
        if function is None or function is not getattr(method, "__func__", None):  # (a cell may have replaced it)
            found = read(method, names)
            known = getattr(method, "__func__", None), found
        return found

    module._accepts_parameters = accepts


def make_kernel() -> tuple[WorkerKernel, ChannelSession, OutStream, OutStream]:
    """The kernel with its shell, not attached to a channel yet. Starts no thread and no loop."""
    _without_debugger()
    _remember_signature()
    per_shell.install()
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    # Figures as data: plotly's own choice adds megabytes of script, of which the output gate lets none pass.
    os.environ.setdefault("PLOTLY_RENDERER", "plotly_mimetype")
    if "" not in sys.path:
        # Behind the standard library, as IPython has it: a `random.py` beside the notebook must not break pandas. (Its
        # own way does nothing in an interpreter that was started with -P.)
        packages_at = (at for at, path in enumerate(sys.path) if Path(path).name in ("site-packages", "dist-packages"))
        sys.path.insert(next(packages_at, 0), "")
    # Libraries look for this name, and argparse in a cell should find no arguments.
    sys.argv = [str(Path(ipykernel.__file__).parent.parent / "ipykernel_launcher.py")]
    IPKernelApp.init_pdb(cast(Any, None))
    IPKernelApp.patch_io(cast(Any, None))
    interactiveshell: Any = IPython.core.interactiveshell
    interactiveshell.HistoryManager = HistoryManager
    completer: Any = IPython.core.completer
    completer.IPCompleter = IPCompleter
    for module in (ipykernel.zmqshell, IPython.utils.process):
        cast(Any, module).system = commands.system

    session = ChannelSession.make()
    streams = OutStream("stdout", 1, session), OutStream("stderr", 2, session)
    sys.stdout, sys.stderr = streams
    socket = NoSocket()
    app = WorkerApp.instance(log=_log(), session=session)
    # user_ns: with None, as in stock, the shell makes `__main__` a real module, with its `__spec__` and `__doc__`.
    # The trait's own default is a dictionary, around which the shell puts a stand-in.
    kernel = WorkerKernel.instance(
        parent=app, session=session, iopub_socket=socket, iopub_thread=socket, log=app.log, user_ns=None
    )
    app.kernel, app.shell = kernel, kernel.shell
    cast(Any, kernel.shell).register_magic_function(_sandbox_magic, "line", "sandbox")
    packages.add_magics(kernel.shell)
    note_quickly(kernel.shell)
    cast(Any, kernel.shell).payload_manager = Payloads(parent=kernel.shell)
    cast(Any, kernel.shell).configurables.append(app)
    cast(Any, kernel.shell).extension_manager.load_extension("storemagic")  # %store, which stock's application loads
    return kernel, session, *streams
