"""pydevd, the part of debugpy that traces, at one end of a socket pair.

Imported when a debugger is needed for the first time: it takes longer than all the rest of a worker's start.

``debugpy.listen`` would start a process of its own and open a port for it, which any code in here could connect to.
pydevd speaks the Debug Adapter Protocol itself, and over any connected socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import queue
import selectors
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, ClassVar

_variables = dict(os.environ)
_breakpointhook = sys.breakpointhook
# It would warn that it cannot trace the frozen modules of the standard library.
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
sys.modules.pop("ipykernel.debugger", None)  # the stand-in of `kernel`
import debugpy  # noqa: E402
import ipykernel.debugger  # noqa: E402 - it also puts pydevd on the path
import pydevd  # noqa: E402
import pydevd_tracing  # noqa: E402
from _pydevd_bundle import pydevd_vm_type  # noqa: E402
from _pydevd_bundle.pydevd_additional_thread_info import set_additional_thread_info  # noqa: E402
from _pydevd_bundle.pydevd_api import PyDevdAPI  # noqa: E402
from _pydevd_bundle.pydevd_constants import PYDEVD_USE_SYS_MONITORING, STATE_RUN  # noqa: E402
from _pydevd_bundle.pydevd_daemon_thread import mark_as_pydevd_daemon_thread  # noqa: E402
from _pydevd_bundle.pydevd_process_net_command_json import PyDevJsonCommandProcessor  # noqa: E402

# Without a session breakpoint() is pdb's, and children of the cells need none of these settings.
sys.breakpointhook = _breakpointhook
for _name in os.environ.keys() - _variables.keys():
    del os.environ[_name]

Stock = ipykernel.debugger.Debugger
# No thread stops in these: a lock of the channel that is held at a breakpoint would be held against the debugger too,
# and an idle worker that stops in its own loop would not take the next cell.
_HIDDEN = (
    *(str(Path(package.__file__ or "").parent) for package in (debugpy, asyncio, json)), selectors.__file__,
    str(Path(__file__).parents[1]),
)  # fmt: skip
_PYDEVD = str(Path(pydevd.__file__).parent)
# What pydevd's commands call to send their answers: an interrupt there would lose the answer.
_PLUMBING = {__file__, threading.__file__, queue.__file__, contextlib.__file__}


def is_known(command: str) -> bool:
    """Whether pydevd answers this request at all; for others it prints a line and says nothing."""
    return hasattr(PyDevJsonCommandProcessor, f"on_{command.lower()}_request")


class Interrupts:
    """SIGINT while the main thread stands at a breakpoint, or is on its way from there.

    KeyboardInterrupt inside of pydevd would show its frames to the person, leave the breakpoint standing in the
    client, and end tracing. So the thread is told to go on, and gets the signal again once it is back in code of the
    cell. An expression that is evaluated at a breakpoint is interrupted alone, and the breakpoint stays.

    Args:
        go_on: lets all threads go on; called from a signal handler.
    """

    def __init__(self, go_on: Callable[[], None]) -> None:
        self._go_on = go_on
        self._due = False
        self._previous: Any = signal.SIG_DFL

    def hold(self) -> Any:
        """Before the wait; returns the handler to give to `release`."""
        previous = signal.getsignal(signal.SIGINT)
        if previous in (self._note, self._pass_on):  # it stops once more before the signal has got through
            previous = self._previous
        signal.signal(signal.SIGINT, self._note)
        return signal.SIG_DFL if previous is None else previous

    def release(self, previous: Any) -> Again | None:
        """After the wait: what came meanwhile comes as soon as the caller has dropped what this returns."""
        signal.signal(signal.SIGINT, self._pass_on if self._due else previous)
        self._previous = previous
        return Again() if self._due else None

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not _waits(frame):
            raise KeyboardInterrupt
        self._due = True
        self._go_on()

    def _pass_on(self, number: int, frame: FrameType | None) -> Again | None:
        if _inside(frame):
            return Again()
        self._due = False
        signal.signal(signal.SIGINT, self._previous)
        if callable(self._previous):
            self._previous(number, frame)
        return None


class Again:
    """SIGINT for the main thread when the object goes.

    A handler that raised the signal by a call would be interrupted by it at once, in its own frame. The interpreter
    drops what a handler returns after the handler's frame has gone, without running any Python code in between.
    """

    _set: Any = ctypes.PyDLL(None)["PyErr_SetInterrupt"]
    _set.argtypes, _set.restype = (ctypes.py_object,), None
    _living: ClassVar[set[weakref.ref[Again]]] = set()

    def __init__(self) -> None:
        self._living.clear()
        self._living.add(weakref.ref(self, self._set))


def _waits(frame: FrameType | None) -> bool:
    """Whether the thread waits at a breakpoint, rather than evaluates something there.

    KeyboardInterrupt in the wait itself would leave the thread marked as suspended: the next code of any cell would
    stop for good. That also holds for what pydevd's wait calls of the standard library. Only commands of the client
    run code of the person, and there pydevd catches what is raised.
    """
    foreign = False
    while frame is not None:
        code = frame.f_code
        if code is Debuggee.do_wait_suspend.__code__:
            return True
        if code.co_filename.startswith(_PYDEVD):
            if code.co_name == "do_it":
                return not foreign
        else:
            foreign = foreign or code.co_filename not in _PLUMBING
        frame = frame.f_back
    return True


def _inside(frame: FrameType | None, *, only: bool = False) -> bool:
    """Whether this frame, or one that it was called from, is of pydevd or of this module."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_PYDEVD) or path == __file__:
            return True
        frame = None if only else frame.f_back
    return False


def cut_traceback(trace: TracebackType | None) -> None:
    """Cut the traceback of an interrupt before the frames of this module or of pydevd."""
    while trace is not None:
        after = trace.tb_next
        if after is not None and _inside(after.tb_frame, only=True):
            trace.tb_next = None
            return
        trace = after


class Debuggee(pydevd.PyDB):  # type: ignore[misc]
    """This process as something that can be debugged, once. Made in the main thread.

    Attributes:
        interrupts: set before the first breakpoint.
    """

    interrupts: Interrupts | None = None

    def begin(self) -> socket.socket:
        """Start pydevd's threads, and tracing in all others; returns the socket to speak to it."""
        near, self._far = socket.socketpair()
        pydevd_vm_type.setup_type()
        # What pydevd looks up when it believes that it may follow a new process.
        pydevd.SetupHolder.setup = {
            "client": "", "server": False, "port": 0, "multiprocess": False, "skip-notify-stdin": True, "ppid": 0,
        }  # fmt: skip
        self.initialize_network(self._far)
        PyDevdAPI().set_dont_trace_start_end_patterns(self, _HIDDEN, ())
        self.ready_to_run = True
        self.start_auxiliary_daemon_threads()
        pydevd.settrace(suspend=False, trace_only_current_thread=False, patch_multiprocessing=False, notify_stdin=False)
        self._breakpointhook = sys.breakpointhook
        sys.breakpointhook = debugpy.breakpoint
        return near

    def do_wait_suspend(self, thread: Any, frame: Any, event: Any, arg: Any, *rest: Any) -> Again | None:
        """Stand at a breakpoint."""
        if self.interrupts is None or threading.current_thread() is not threading.main_thread():
            super().do_wait_suspend(thread, frame, event, arg, *rest)
            return None
        previous = self.interrupts.hold()
        try:
            super().do_wait_suspend(thread, frame, event, arg, *rest)
        except BaseException:
            # Whatever came through: a thread that is left marked as suspended stops at its next line, in any session.
            go_on(thread)
            raise
        finally:
            again = self.interrupts.release(previous)
        return again

    def trace_again(self) -> None:
        """For the calling thread: an exception out of pydevd's code has ended its tracing."""
        if not PYDEVD_USE_SYS_MONITORING and not self.pydb_disposed and sys.gettrace() is None:
            self.enable_tracing()

    def end(self) -> None:
        """End tracing and pydevd's threads, after the near end was closed. The main thread calls `untrace` besides."""
        if sys.breakpointhook is debugpy.breakpoint:
            sys.breakpointhook = self._breakpointhook
        pydevd.stoptrace()
        self._far.close()

    def end_in_fork(self) -> None:
        """In a forked child, where pydevd's threads are missing: nothing may stop here, nobody could make it go on."""
        self.pydb_disposed = True
        pydevd.settrace_forked(setup_tracing=False)
        if PYDEVD_USE_SYS_MONITORING:
            pydevd.pydevd_sys_monitoring.stop_monitoring(all_threads=True)
        else:
            untrace()
            threading.settrace(None)
        if sys.breakpointhook is debugpy.breakpoint:
            sys.breakpointhook = self._breakpointhook
        self._far.close()


def go_on(thread: threading.Thread) -> None:
    """Mark it as running: it neither stands nor steps."""
    info = set_additional_thread_info(thread)
    info.pydev_step_cmd = info.pydev_original_step_cmd = -1
    info.pydev_step_stop = None
    info.pydev_state = STATE_RUN
    info.update_stepping_info()


def untrace() -> None:
    """End what is left of tracing in the calling thread."""
    if not PYDEVD_USE_SYS_MONITORING:
        pydevd_tracing.restore_sys_set_trace_func()
        sys.settrace(None)


def hide(thread: threading.Thread) -> None:
    """Before its start: pydevd neither stops nor shows this thread."""
    mark_as_pydevd_daemon_thread(thread)
