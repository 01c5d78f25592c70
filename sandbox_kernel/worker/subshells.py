"""Subshells (JEP 91): each is a thread with an event loop of its own, and shares the namespace with the others.

The main thread reads the channel while it is free. While it runs a cell a second thread has to: it is started when
the first subshell is asked for, so a session without subshells has one thread, as forks and copies of it like it.
A cell may hold the main thread just then; the front sends SIGURG for that.
"""

from __future__ import annotations

import _thread
import asyncio
import contextvars
import ctypes
import os
import select
import signal
import threading
import time
from collections import deque
from contextlib import suppress
from functools import partial
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from .link import Link, Request
from .per_shell import MAIN, SUBSHELL, enter, forget

if TYPE_CHECKING:
    from .serve import Server

OFFER_S = 0.02  # how long a message waits for the shell that its comm has spoken from
CANCEL_S = 0.05  # how long an interrupt waits for the event loop before it is raised in the code itself
YIELD_S = 0.001  # how long the main thread has for reading what it can read itself
JOIN_S = 0.5


class Subshell:
    """One shell beside the main one. Serves one request after the other, and comm messages while a cell awaits.

    Raises:
        RuntimeError: the process may have no more threads.
    """

    def __init__(self, name: str, server: Server, link: Link) -> None:
        self.name = name
        self.awaiting: asyncio.Future[Any] | None = None  # what the cell that runs waits for
        self._server, self._link = server, link
        self._loop = asyncio.new_event_loop()
        # One context for all of its cells, as the main shell has one.
        self._context = contextvars.Context()
        self._queue: deque[Request] = deque()
        self._active: Request | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._guard = threading.Lock()
        self._interruptible = ""  # the request whose code may be interrupted
        self.thread = threading.Thread(target=self._run, name=f"{SUBSHELL}{name}", daemon=True)
        self.thread.start()

    def post(self, request: Request, after_s: float = 0.0) -> None:
        """Serve this, from any thread; after some time only if no other shell has claimed it by then."""
        with suppress(RuntimeError):  # the loop is closed
            if after_s:
                self._loop.call_soon_threadsafe(self._loop.call_later, after_s, self._take, request)
            else:
                self._loop.call_soon_threadsafe(self._take, request)

    def close(self) -> None:
        """End once what was asked for is done; waits for the thread when that is now."""
        active = self._active
        idle = active is None or active.replied
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._leave)
        if idle and self.thread is not threading.current_thread():
            self.thread.join(JOIN_S)

    def _leave(self) -> None:
        self._closing = True
        if self._active is None:
            self._loop.stop()

    def _run(self) -> None:
        enter(self.name)
        asyncio.set_event_loop(self._loop)
        while not self._closing or self._active is not None:
            with suppress(BaseException):  # a task of the cells can end the loop, by SystemExit for one
                self._loop.run_forever()
        with suppress(BaseException):
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            if left:
                self._loop.run_until_complete(asyncio.wait(left, timeout=JOIN_S))
            self._loop.close()
        forget(self.name)

    # -- requests

    def _take(self, request: Request) -> None:
        self._queue.append(request)
        self._start()

    def _start(self) -> None:
        for request in tuple(self._queue):
            aside = self._active is not None
            if aside and request.op != "comm":
                continue
            self._queue.remove(request)
            mine = request.claim(self.name)
            if request.owner.get("offered") == MAIN:
                self._server.deaf = mine
            if not mine:
                continue
            context = self._context.copy() if aside else self._context
            if not aside:
                self._active = request
            task = self._loop.create_task(self._serve(request), context=context)
            self._tasks.add(task)
            task.add_done_callback(partial(self._served, request))

    async def _serve(self, request: Request) -> None:
        if request is self._active:
            self._interruptible = request.id
        await self._server.respond(request, partial(self._hold_interrupts, request))

    def _served(self, request: Request, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if request is self._active:
            self._active = None
        self._start()
        if self._closing and self._active is None:
            self._loop.stop()

    # -- interrupts

    def interrupt(self, request_id: str) -> None:
        """KeyboardInterrupt for this request's code, when it still runs. Blocks for a moment.

        No signal reaches a thread. What awaits is cancelled by the event loop; when that does not turn, the exception
        is planted in the thread, where it is raised as soon as Python code runs there.
        """
        if self._interruptible == request_id and self._end_question():
            return
        turn: dict[str, str] = {}
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel, request_id, turn)
        time.sleep(CANCEL_S)
        if turn.setdefault("who", "thread") != "thread":
            return
        with self._guard:
            if self._interruptible == request_id:
                _raise_in(self.thread.ident, KeyboardInterrupt)
                self._end_question()  # that began meanwhile

    def _end_question(self) -> bool:
        """Whether the thread waited for an answer of the person; it does no longer."""
        asked = [waiter for waiter in tuple(self._link.waiters.values()) if waiter.thread == self.thread.ident]
        for waiter in asked:
            waiter.interrupted = True
            with suppress(OSError):
                os.write(waiter.wake, b"!")
        return bool(asked)

    def _cancel(self, request_id: str, turn: dict[str, str]) -> None:
        if turn.setdefault("who", "loop") != "loop" or self._interruptible != request_id:
            return
        if self.awaiting is not None and not self.awaiting.done():
            self.awaiting.cancel()

    def _hold_interrupts(self, request: Request) -> None:
        """From here on the request cannot be interrupted; what was planted and not raised yet is taken back."""
        with self._guard:
            if self._interruptible == request.id:
                self._interruptible = ""
                _raise_in(threading.get_ident(), None)


class Subshells:
    """All of them. Stands where stock code looks for its ``SubshellManager``."""

    def __init__(self, server: Server, link: Link) -> None:
        self._server, self._link = server, link
        self._shells: dict[str, Subshell] = {}
        self._graves: list[dict[str, Subshell]] = []
        self._reading = False
        kernel = server.kernel
        # Stock asks this object which thread is the main shell's, and %subshell asks for the list.
        kernel.shell_channel_thread = SimpleNamespace(parent_thread=threading.main_thread(), manager=self)
        link.aside = self._aside
        signal.signal(signal.SIGURG, self._urged)
        os.register_at_fork(after_in_child=self._alone)

    def list_subshell(self) -> list[str]:
        """The ids, oldest first."""
        return list(self._shells)

    def subshell_id_from_thread_id(self, thread_id: int) -> str | None:
        """The subshell that this thread is; None for the main shell.

        Raises:
            RuntimeError: it is neither.
        """
        if thread_id == threading.main_thread().ident:
            return None
        for name, shell in tuple(self._shells.items()):
            if shell.thread.ident == thread_id:
                return name
        raise RuntimeError(f"Thread id {thread_id!r} does not belong to a subshell of this kernel")

    def current(self) -> Subshell | None:
        """The subshell whose thread calls."""
        mine = threading.get_ident()
        return next((shell for shell in tuple(self._shells.values()) if shell.thread.ident == mine), None)

    # -- reading

    def _urged(self, number: int, frame: FrameType | None) -> None:
        with suppress(BaseException):
            self._read_on()

    def _read_on(self) -> None:
        """Have the channel read while the main thread is busy. (No lock: this runs in a signal handler, too.)"""
        if not self._reading:
            self._reading = True
            try:
                _thread.start_new_thread(self._read, ())
            except RuntimeError:
                self._reading = False

    def _read(self) -> None:
        poller = select.poll()
        poller.register(self._link.fileno(), select.POLLIN)
        while True:
            with suppress(BaseException):
                poller.poll()
                if not self._server.busy:
                    time.sleep(YIELD_S)
                    if not poller.poll(0):
                        continue
                self._link.receive()
                if self._link.requests:
                    self._link.notify()

    def _alone(self) -> None:
        """A fork has one thread. (Its loops are kept, or the end of each would be a warning.)"""
        self._graves.append(self._shells)
        self._shells, self._reading = {}, False

    # -- what the front says

    def _aside(self, request: Request) -> bool:
        if request.op == "subshells":
            self._set(request.fields["ids"])
        elif request.op == "interrupt":
            _thread.start_new_thread(self._interrupt, (request.fields["shell"], request.fields["request"]))
        elif request.op == "comm":
            return self._comm(request)
        elif request.fields.get("shell"):
            self._deliver(request, request.fields["shell"])
        else:
            return False
        return True

    def _set(self, names: list[str]) -> None:
        gone = [self._shells.pop(name) for name in tuple(self._shells) if name not in names]
        for name in names:
            if name not in self._shells:
                with suppress(RuntimeError):  # each of its requests gets an error instead
                    self._shells[name] = Subshell(name, self._server, self._link)
        if self._shells:
            self._read_on()
        for shell in gone:
            shell.close()

    def _deliver(self, request: Request, name: str) -> None:
        shell = self._shells.get(name)
        if shell is not None:
            shell.post(request)
        else:
            self._server.refuse(request, RuntimeError("this subshell could not be started"))

    def _comm(self, request: Request) -> bool:
        """A comm's message goes to the shell that the comm last spoke from, when that shell has time for it.

        What waits there for an answer, a future for one, can only be woken on its own thread, and most libraries
        know but one thread. When that shell runs code that does not await, the message is handled where the front
        has sent it, at once: a widget that a loop looks at must change.
        """
        sent, home = request.fields.get("shell") or MAIN, MAIN
        with suppress(Exception):
            home = self._home(request, sent)
        if sent != MAIN and sent not in self._shells:
            self._deliver(request, sent)
            return True
        deaf = home == MAIN and self._server.deaf
        if home == sent or deaf or (home != MAIN and home not in self._shells):
            if sent == MAIN:
                return False
            self._shells[sent].post(request)
            return True
        request.owner["offered"] = home
        if sent == MAIN:
            self._shells[home].post(request)
            threading.Timer(OFFER_S, self._to_main, (request,)).start()
            return True
        self._shells[sent].post(request, OFFER_S)
        if home == MAIN:
            return False
        self._shells[home].post(request)
        return True

    def _to_main(self, request: Request) -> None:
        self._link.requests.append(request)
        self._link.notify()

    def _home(self, request: Request, sent: str) -> str:
        content = request.fields["content"]
        comm = self._server.kernel.comm_manager.comms.get(content["comm_id"])
        route = getattr(comm, "_reply_subshell_for", None)
        if request.fields["msg_type"] == "comm_open" or route is None:
            return sent
        home = route(content.get("data"), sent or None)
        return home if isinstance(home, str) else MAIN

    def _interrupt(self, name: str, request_id: str) -> None:
        shell = self._shells.get(name)
        if self._server.active_id == request_id:  # a comm message that the main shell has taken over
            os.kill(os.getpid(), signal.SIGINT)
        elif shell is not None:
            shell.interrupt(request_id)


def _raise_in(thread: int | None, error: type[BaseException] | None) -> None:
    plant = ctypes.pythonapi.PyThreadState_SetAsyncExc
    plant(ctypes.c_ulong(thread or 0), ctypes.py_object(error) if error is not None else None)
