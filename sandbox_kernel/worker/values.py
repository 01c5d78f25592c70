"""Variables and files in and out of the session, calls of its functions, and modules whose functions are the host's.

Values cross as packed frames, see ``frames.transport``. What is too large for a message is written into memory that
the front has made for it, or comes in such memory.
"""

from __future__ import annotations

import asyncio
import builtins
import inspect
import mmap
import os
import resource
import sys
import types
from collections.abc import Callable, Coroutine, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..channel.framing import Bytes, encode
from ..errors import FrameRefused
from . import describing
from .link import Link, Request
from .questions import Questions

if TYPE_CHECKING:
    from .. import frames
    from ..frames import transport

INLINE_BYTES = 256 * 1024
_WRITE_BYTES = 64 * 1024 * 1024
# Types of a cell's result that are worth sending as such: others show themselves well enough.
_DATA_TYPES = {
    "DataFrame": "pandas", "Series": "pandas", "ndarray": "numpy", "Index": "pandas", "MultiIndex": "pandas",
    "RangeIndex": "pandas", "DatetimeIndex": "pandas",
}  # fmt: skip

_STUB = """
def {name}(*arguments, **named):
    value, error = __host_call(arguments, named)
    if error is not None:
        raise error from None
    return value
"""
AT_ONCE = frozenset({"put", "get", "call"})  # they wait for nothing but room, unless a coroutine function is called
_Value = tuple[int, Sequence[Bytes]]  # room (0: none), buffers of the message


@cache
def _import_frames() -> None:
    # Not before it is asked for: most kernels pass no values, and all of them start.
    global frames, transport
    from .. import frames
    from ..frames import transport


class Values:
    """Answers the requests about values; one of them at a time, and while no cell runs."""

    def __init__(self, kernel: Any, link: Link, questions: Questions) -> None:
        self._kernel, self._link, self._questions = kernel, link, questions
        self._folder = os.getcwd()
        self._modules: dict[str, HostModule] = {}
        self.handlers: dict[str, Callable[[Request], Any]] = {
            "put": self._put, "get": self._get, "export": self._export, "call": self._call, "modules": self._install,
            "write_file": self._write_file, "read_file": self._read_file, "list_files": self._list_files,
            "variables": self._list_variables, "describe": self._describe,
        }  # fmt: skip

    def answer(self, request: Request) -> dict[str, Any] | Coroutine[Any, Any, dict[str, Any]]:
        """The reply's content; where that has to be waited for, what does so. It is to be awaited in a task."""
        _import_frames()
        try:
            done = self.handlers[request.op](request)
        except FrameRefused as error:
            return _refusal(error)
        return done or {"status": "ok"}

    @property
    def _variables(self) -> dict[str, Any]:
        variables: dict[str, Any] = self._kernel.shell.user_ns
        return variables

    # ------------------------------------------------------------ variables

    def _put(self, request: Request) -> None:
        self._variables[request.fields["name"]] = read(request.buffers, request.fds)

    def _get(self, request: Request) -> dict[str, Any] | None:
        fields = request.fields
        if "result" in fields:
            value = self._variables.get("_oh", {}).get(fields["result"])
            kind = type(value)
            if _DATA_TYPES.get(kind.__name__) != kind.__module__.partition(".")[0]:
                return None
            try:
                payload, buffers = frames.dumps(value)
            except FrameRefused:
                return None
            if len(payload) + sum(map(len, buffers)) <= fields["most"]:
                self._reply_with(request, payload, buffers)
            return None
        name = fields["name"]
        if name not in self._variables:
            return {"status": "error", "ename": "KeyError", "evalue": f"the session has no variable {name!r}"}
        self._reply_with(request, *frames.dumps(self._variables[name]))
        return None

    def _list_variables(self, request: Request) -> None:
        found = describing.variables(self._variables, self._kernel.shell.user_ns_hidden)
        self._reply_with(request, *frames.dumps(found))

    def _describe(self, request: Request) -> dict[str, Any] | None:
        name = request.fields["name"]
        if name not in self._variables:
            return {"status": "error", "ename": "KeyError", "evalue": f"the session has no variable {name!r}"}
        self._reply_with(request, *frames.dumps(describing.description(name, self._variables[name])))
        return None

    def _export(self, request: Request) -> dict[str, Any] | None:
        name = request.fields["name"]
        if name not in self._variables:
            return {"status": "error", "ename": "KeyError", "evalue": f"the session has no variable {name!r}"}
        try:
            frames.dump_file(self._variables[name], self._path(request))
        except OSError as error:
            reason = f"{request.fields['path']}: {error.strerror}"
            return {"status": "error", "ename": type(error).__name__, "evalue": reason}
        return None

    def _call(self, request: Request) -> dict[str, Any] | Coroutine[Any, Any, dict[str, Any]] | None:
        first, *rest = request.fields["name"].split(".")
        arguments, named = read(request.buffers, request.fds)
        try:
            if first not in self._variables:
                raise NameError(f"name {first!r} is not defined")
            function = self._variables[first]
            for name in rest:
                function = getattr(function, name)
            value = function(*arguments, **(named or {}))
            if inspect.isawaitable(value):
                return self._call_rest(request, value)
        except BaseException as error:
            return self._told(error)
        self._reply_with(request, *frames.dumps(value))
        return None

    async def _call_rest(self, request: Request, work: Any) -> dict[str, Any]:
        try:
            future = asyncio.ensure_future(work)
            with self._kernel._cancel_on_sigint(future):
                try:
                    value = await future
                except asyncio.CancelledError:
                    raise KeyboardInterrupt from None
        except BaseException as error:
            return self._told(error)
        try:
            self._reply_with(request, *frames.dumps(value))
        except FrameRefused as error:
            return _refusal(error)
        return {"status": "ok"}

    def _told(self, error: BaseException) -> dict[str, Any]:
        """An exception of a function that was called, as a cell would show it."""
        trace = error.__traceback__
        trace = trace.tb_next if trace is not None and trace.tb_next is not None else trace
        try:
            lines = self._kernel.shell.InteractiveTB.structured_traceback(type(error), error, trace, tb_offset=0)
        except Exception:
            lines = [f"{type(error).__name__}: {error}"]
        return {"status": "error", "ename": type(error).__name__, "evalue": str(error), "traceback": lines,
                "bases": [kind.__name__[:100] for kind in type(error).__mro__[1:-2]][:20]}  # fmt: skip

    def _reply_with(self, request: Request, payload: bytes, buffers: Sequence[memoryview]) -> None:
        room, pieces = self._placed(payload, buffers)
        if room:
            self._link.send(encode({"type": "value", "id": request.id, "room": room}, pieces))
        else:
            request.value = bytes(pieces[0])  # one message in place of two, which wake the front twice

    def _placed(self, payload: bytes, buffers: Sequence[memoryview]) -> _Value:
        """A value packed into one buffer for a message, or written into a room that the front gave.

        Raises:
            FrameRefused: the front gives none.
        """
        pieces = transport.pack(payload, buffers)
        size = transport.packed_size(pieces)
        if size <= INLINE_BYTES:
            return 0, [b"".join(pieces)]
        answer = self._questions.exchange({"type": "room", "size": size})
        if answer.get("op") != "room":
            raise FrameRefused(str(answer.get("reason")))
        (fd,) = answer["fds"]
        try:
            write(fd, size, pieces)
        finally:
            os.close(fd)
        return int(answer["serial"]), []

    # ------------------------------------------------------------ files

    def _path(self, request: Request) -> Path:
        return Path(self._folder, request.fields["path"])

    def _write_file(self, request: Request) -> dict[str, Any] | None:
        content = read(request.buffers, request.fds)
        path = self._path(request)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError as error:
            return _os_error(error)
        return None

    def _read_file(self, request: Request) -> dict[str, Any] | None:
        try:
            content = self._path(request).read_bytes()
        except OSError as error:
            return _os_error(error)
        self._reply_with(request, *frames.dumps(content))
        return None

    def _list_files(self, request: Request) -> dict[str, Any] | None:
        found = []
        try:
            with os.scandir(self._path(request)) as entries:
                for entry in entries:
                    size = entry.stat(follow_symlinks=False).st_size
                    found.append((entry.name, -1 if entry.is_dir(follow_symlinks=False) else size))
        except OSError as error:
            return _os_error(error)
        self._reply_with(request, *frames.dumps(sorted(found)))
        return None

    # ------------------------------------------------------------ modules of the host

    def _install(self, request: Request) -> None:
        values = read(request.buffers, request.fds)
        for name in request.fields["remove"]:
            if sys.modules.get(name) is self._modules.pop(name, None):
                sys.modules.pop(name, None)
        for name, functions in request.fields["add"].items():
            module = HostModule(name, "Functions and values of the program that runs this sandbox.")
            for function, told in functions.items():
                vars(module)[function] = self._function(name, function, told)
            vars(module).update(values[name])
            vars(module)["__all__"] = [*functions, *values[name]]
            sys.modules[name] = self._modules[name] = module

    def _function(self, module: str, name: str, told: str) -> Callable[..., Any]:
        # From source, so that a traceback ends in a frame that says "<host>" and not in this module.
        # (No function of a host has a name that begins with two underscores: it would replace what the stub calls.)
        names: dict[str, Any] = {"__name__": module, "__host_call": partial(self._call_host, module, name)}
        exec(compile(_STUB.format(name=name), f"<{module}>", "exec"), names)  # noqa: S102
        function: Callable[..., Any] = names[name]
        function.__doc__ = told
        return function

    def _call_host(
        self, module: str, name: str, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Any, BaseException | None]:
        """What the host returned, or the exception to raise."""
        try:
            return self._ask_host(module, name, arguments, named), None
        except Exception as error:
            return None, error.with_traceback(None)

    def _ask_host(self, module: str, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if os.getpid() != self._link.pid:
            raise RuntimeError(f"{module}.{name} cannot be called in a forked process")
        try:
            payload, buffers = frames.dumps((arguments, named))
            room, pieces = self._placed(payload, buffers)
        except FrameRefused as error:
            raise TypeError(f"{module}.{name} cannot be called with this: {error}") from None
        message = {"type": "host_call", "module": module, "name": name, "room": room}
        answer = self._questions.exchange(message, pieces)
        if "ename" in answer:
            raise _exception(answer["ename"], answer["evalue"])
        return read(answer["buffers"], answer["fds"])


class HostModule(types.ModuleType):
    """A module whose attributes cannot be changed."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("__"):  # the import system sets some
            raise AttributeError(f"module {self.__name__!r} is read-only: it belongs to the host")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"module {self.__name__!r} is read-only: it belongs to the host")


def _exception(name: str, text: str) -> BaseException:
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(text)
        except TypeError:  # it wants more than a text
            pass
    return RuntimeError(f"{name}: {text}")


def beside(request: Request, reply: dict[str, Any]) -> list[bytes]:
    """What goes with the reply, which says so: the value that was asked for, unless something failed after all."""
    if request.value is None or reply["content"].get("status") != "ok":
        return []
    reply["value"] = True
    return [request.value]


def _refusal(error: FrameRefused) -> dict[str, Any]:
    return {"status": "error", "ename": "FrameRefused", "evalue": str(error)}


def _os_error(error: OSError) -> dict[str, Any]:
    return {"status": "error", "ename": type(error).__name__, "evalue": str(error)}


def read(buffers: Sequence[memoryview], fds: Sequence[int]) -> Any:
    """The value that came with a request; large ones stay where they are, as private memory."""
    if not fds:
        memory: Bytes = bytearray(buffers[0])  # arrays in it are to be writable
    else:
        options: dict[str, Any] = {"flags": mmap.MAP_PRIVATE, "prot": mmap.PROT_READ | mmap.PROT_WRITE}
        if sys.version_info >= (3, 13):
            options["trackfd"] = False
        try:
            memory = memoryview(mmap.mmap(fds[0], os.fstat(fds[0]).st_size, **options))
        except OSError as error:
            raise FrameRefused("there is too little memory in the sandbox for this value") from error
        finally:
            os.close(fds[0])
    return frames.loads(*transport.unpack(memory))


def write(fd: int, size: int, pieces: Sequence[Bytes]) -> None:
    """All of a packed frame into a room."""
    views = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit not in (-1, resource.RLIM_INFINITY) and size > limit:
        # The limit on files holds for writes to such memory, too, but not for a mapping. It must be gone before the
        # front looks: it does not take what can still be written.
        with mmap.mmap(fd, size) as room:
            at = 0
            for view in views:
                room[at : at + len(view)] = view
                at += len(view)
        return
    at = 0
    for view in views:
        for start in range(0, len(view), _WRITE_BYTES):
            rest = view[start : start + _WRITE_BYTES]
            while len(rest):
                done = os.pwrite(fd, rest, at)
                at += done
                rest = rest[done:]

