"""Debug requests: answered in turn between the cells and, while a debug session lasts, by a thread of its own.

The thread goes on while the cell stands at a breakpoint. It exists only during a session: a worker without threads can
fork without harm. What the requests mean is ipykernel's `Debugger`; here is how they and pydevd are reached.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import threading
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipykernel.compiler import get_tmp_directory, get_tmp_hash_seed

from ..channel.framing import encode
from .kernel import WorkerKernel
from .link import Link, Request
from .session import packets_of

if TYPE_CHECKING:
    from .debuggee import Debuggee

# The events that the front lets pass; pydevd has some more of its own.
EVENTS = frozenset(
    {
        "initialized", "stopped", "continued", "exited", "terminated", "thread", "output", "breakpoint", "module",
        "loadedSource", "process", "capabilities", "progressStart", "progressUpdate", "progressEnd", "invalidated",
        "memory",
    }
)  # fmt: skip
# Requests that begin or end something: what comes after them waits for them.
_STEPS_OF_A_SESSION = {"initialize", "attach", "launch", "disconnect"}
_WITHOUT_SESSION = {"debugInfo", "inspectVariables", "richInspectVariables", "modules", "copyToGlobals"}

Message = dict[str, Any]


def refusal(text: str) -> Message:
    """The answer to a request that is not fulfilled."""
    return {"success": False, "message": text, "body": {}}


class Debugging:
    """Who answers debug requests.

    Args:
        loop: the worker's main loop.
    """

    def __init__(self, kernel: WorkerKernel, link: Link, loop: asyncio.AbstractEventLoop) -> None:
        self._kernel: Any = kernel
        self._link = link
        self._loop = loop
        self._stock: Any = None
        self._session: Session | None = None
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        # A child is not debugged. One that goes on as a worker (a copy that is woken) may be, in a session of its own.
        if self._session is not None:
            self._session.forked()
            self._reset()

    async def answer(self, message: Message) -> Message:
        """The answer to a request that came between cells, in the main thread."""
        if message.get("command") != "initialize" or self._session is not None:
            return await self.process(message)
        try:
            self._load()
            self._session = Session(self, self._link, self._kernel)
            return await self._session.begin(message)
        except Exception as error:  # an environment without debugpy, for example
            return refusal(f"{type(error).__name__}: {error}")

    async def process(self, message: Message) -> Message:
        """The answer, from whichever thread answers."""
        command = message.get("command")
        if command == "debugInfo" and self._stock is None:
            return {"success": True, "body": information()}
        if command not in _WITHOUT_SESSION and self._session is None:
            return refusal("The debugger is not started.")
        try:
            answer = await self._load().process_request(message)
        except Exception as error:
            return refusal(f"{type(error).__name__}: {error}")
        body = answer.get("body")
        known: Message = {"success": bool(answer.get("success", True)), "body": body if isinstance(body, dict) else {}}
        if not known["success"]:
            known["message"] = str(answer.get("message") or "The debugger did not fulfil the request.")
        return known

    def _load(self) -> Any:
        if self._stock is None:
            self._stock = _stock_debugger(self._kernel)
        return self._stock

    # -- of the session

    def connect(self, client: Any) -> None:
        """The session begins: requests for pydevd go to `client`, as ipykernel's own client takes them."""
        self._stock.debugpy_client = client
        # What follows is what ipykernel executes in a cell of its own before it connects.
        self._stock.debugpy_initialized = True
        Path(get_tmp_directory()).mkdir(mode=0o700, parents=True, exist_ok=True)

    def event(self, event: Message) -> None:
        """Note an event as ipykernel does."""
        stopped = self._stock.stopped_threads
        body = event.get("body") or {}
        if event["event"] == "stopped" and "threadId" in body:
            stopped.add(body["threadId"])
        elif event["event"] == "continued":
            if body.get("allThreadsContinued"):
                stopped.clear()
            else:
                stopped.discard(body.get("threadId"))

    def threads_stopped(self, answer: Message) -> None:
        """Note which threads there were when all were stopped."""
        threads = (answer.get("body") or {}).get("threads") or []
        self._stock.stopped_threads.update(thread["id"] for thread in threads)

    def ended(self) -> None:
        """The session is over (called in its thread)."""
        self._reset()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_untrace)

    def _reset(self) -> None:
        if self._stock.is_started:
            self._stock.stop()
        self._stock.is_started = False
        self._stock.breakpoint_list, self._stock.stopped_threads = {}, set()
        self._session = None


def _untrace() -> None:
    from .debuggee import untrace

    untrace()


def _stock_debugger(kernel: Any) -> Any:
    from .debuggee import Stock

    return Stock(
        kernel.log, None, None, None, None, kernel._kernel_modules, kernel.debug_just_my_code,
        kernel.filter_internal_frames,
    )  # fmt: skip


def information() -> Message:
    """What ``debugInfo`` says before the debugger is loaded: a client asks for it whenever it opens a notebook."""
    return {
        "isStarted": False, "hashMethod": "Murmur2", "hashSeed": get_tmp_hash_seed(),
        "tmpFilePrefix": get_tmp_directory() + os.sep, "tmpFileSuffix": ".py", "breakpoints": [], "stoppedThreads": [],
        "richRendering": True, "exceptionPaths": ["Python Exceptions"], "copyToGlobals": True,
    }  # fmt: skip


class Session:
    """One debug session: pydevd, and the thread that speaks with it and with the front. Made in the main thread."""

    def __init__(self, debugging: Debugging, link: Link, kernel: Any) -> None:
        from .debuggee import Debuggee, Interrupts, hide

        self._debugging, self._link, self._kernel = debugging, link, kernel
        self._seq = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._attached = self._over = False
        self._writer: asyncio.StreamWriter | None = None
        self._loop = asyncio.new_event_loop()
        self._turn = asyncio.Lock()
        debugging.connect(self)
        self._thread = threading.Thread(target=self._run, name="Debugging", daemon=True)
        hide(self._thread)
        self._debuggee: Debuggee = Debuggee()
        self._debuggee.interrupts = Interrupts(self._go_on)
        self._shell: Any = kernel.shell

    async def begin(self, message: Message) -> Message:
        """Start, with the client's first request; returns the answer to it."""
        self._thread.start()  # before pydevd, which would trace it
        self._shell.events.register("pre_execute", self._trace_again)
        self._shell._get_exc_info = self._exc_info
        await self._in_thread(self._connect(self._debuggee.begin()))
        answer: Message = await self._in_thread(self._answer(message))
        if not answer["success"]:
            await self._in_thread(self._give_up())
        return answer

    def _in_thread(self, step: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(step, self._loop))

    def _trace_again(self) -> None:
        self._debuggee.trace_again()

    def _leave_shell(self) -> None:
        with suppress(ValueError):
            self._shell.events.unregister("pre_execute", self._trace_again)
        vars(self._shell).pop("_get_exc_info", None)

    def _exc_info(self, exc_tuple: Any = None) -> Any:
        """What the shell shows of an exception: an interrupt at a breakpoint came through code of the debugger."""
        from .debuggee import cut_traceback

        kind, value, trace = type(self._shell)._get_exc_info(self._shell, exc_tuple)
        if issubclass(kind, KeyboardInterrupt):
            cut_traceback(trace)
        return kind, value, trace

    def forked(self) -> None:
        """In a forked child, which has neither the thread nor pydevd's."""
        self._leave_shell()
        self._debuggee.end_in_fork()

    # -- the thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._answer_rest())
        self._loop.close()

    async def _connect(self, near: socket.socket) -> None:
        self._near = near
        reader, self._writer = await asyncio.open_unix_connection(sock=near)
        self._reading = self._loop.create_task(self._read(reader))
        self._link.take_over("debug", self._take)
        self._loop.add_reader(self._link.fileno(), self._link.receive)

    def _take(self, request: Request) -> None:
        # From any thread, with the lock of the link.
        self._loop.call_soon_threadsafe(self._begin, request)

    def _begin(self, request: Request) -> None:
        self._keep(self._serve(request))

    def _keep(self, step: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(step)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, request: Request) -> None:
        message = request.fields.get("content") or {}
        answer = await self._answer(message)
        over = message.get("command") == "disconnect" and not self._over
        if over:
            await self._end()
        self._reply(request, answer)
        if over:
            self._loop.stop()

    async def _give_up(self) -> None:
        await self._end()
        self._loop.call_soon(self._loop.stop)

    async def _answer(self, message: Message) -> Message:
        """Answers to steps of the session one after the other; others may take as long as code of the cell takes."""
        if message.get("command") in _STEPS_OF_A_SESSION:
            async with self._turn:
                return await self._debugging.process(message)
        async with self._turn:
            pass
        return await self._debugging.process(message)

    async def _answer_rest(self) -> None:
        """After the end: what had come before the link was handed back is answered, too."""
        await asyncio.sleep(0)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=10)

    def _reply(self, request: Request, content: Message) -> None:
        reply = {"type": "reply", "id": request.id, "content": content, "execution_count": 0}
        try:
            packets = list(packets_of(reply))
        except Exception as error:
            packets = list(encode({**reply, "content": refusal(f"the answer cannot be sent: {error}")}))
        self._link.send(packets)

    async def _end(self) -> None:
        self._over = True
        self._reading.cancel()
        self._loop.remove_reader(self._link.fileno())
        self._leave_shell()
        self._near.shutdown(socket.SHUT_RDWR)
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()
        self._debuggee.end()
        self._answer_open()
        self._debugging.ended()
        self._link.hand_back("debug")

    def _go_on(self) -> None:
        with suppress(RuntimeError):  # the session has just ended, and with it every breakpoint
            self._loop.call_soon_threadsafe(self._post, {"command": "continue", "arguments": {"threadId": "*"}})

    # -- pydevd; the first four are what ipykernel's debugger calls

    def connect_tcp_socket(self) -> None:
        """There is none: the session is connected since it was made."""

    def disconnect_tcp_socket(self) -> None:
        """See `connect_tcp_socket`."""

    def get_host_port(self) -> tuple[str, int]:
        """Where pydevd listens, which is nowhere."""
        return "", 0

    async def send_dap_request(self, message: Message) -> Message:
        """One request and its answer."""
        from .debuggee import is_known

        command = str(message.get("command"))
        if not is_known(command):
            return refusal(f"The debugger knows no request {command!r}.")
        if command == "terminate":
            return refusal("A debugger does not end the session; the kernel's restart does.")
        # As debugpy's adapter does, which stands between pydevd and clients elsewhere.
        arguments = message.get("arguments") or {}
        if command in ("pause", "continue"):
            message = {**message, "arguments": {**arguments, "threadId": "*"}}
        elif command == "disconnect":  # pydevd would end this process, and the variables with it
            message = {**message, "arguments": {**arguments, "terminateDebuggee": False}}
        elif command == "initialize":
            message = {**message, "arguments": {"adapterID": "", **arguments}}
        answer = await self._post(message)
        if command == "attach" and not self._attached and answer.get("success"):
            # The client of the Jupyter protocol does not know of this step.
            self._attached = True
            await self._post({"command": "configurationDone"})
        return answer

    def _post(self, message: Message) -> asyncio.Future[Message]:
        seq = next(self._seq)
        answer = self._answers[seq] = self._loop.create_future()
        if self._over:
            self._answer_open()
            return answer
        text = json.dumps({**message, "type": "request", "seq": seq}).encode()
        if self._writer is not None:
            self._writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
        return answer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.partition(b":")[2])
                message = json.loads(await reader.readexactly(size))
                if message.get("type") == "event":
                    self._event(message)
                else:
                    answer = self._answers.pop(message.get("request_seq"), None)
                    if answer is not None and not answer.done():
                        answer.set_result(message)
        self._answer_open()

    def _answer_open(self) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(refusal("The debugger has ended."))

    def _event(self, event: Message) -> None:
        if event["event"] == "stopped" and (event.get("body") or {}).get("allThreadsStopped"):
            self._keep(self._all_stopped(event))
            return
        self._tell(event)

    async def _all_stopped(self, event: Message) -> None:
        self._debugging.threads_stopped(await self._post({"command": "threads"}))
        self._tell(event)

    def _tell(self, event: Message) -> None:
        self._debugging.event(event)
        if event["event"] in EVENTS:
            body = event.get("body")
            packets = packets_of(
                {"type": "debug_event", "event": event["event"], "body": body if isinstance(body, dict) else {}}
            )
            with suppress(ValueError, TypeError):
                self._link.send(packets)
