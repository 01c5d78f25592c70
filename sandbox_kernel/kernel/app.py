"""ipykernel's application with the parts left out that would run a person's or a folder's code in the front."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from typing import Any

import zmq
from ipykernel.kernelapp import IPKernelApp
from traitlets import Any as AnyTrait
from traitlets.config.loader import Config

from ..policy import Resolved
from .front import SandboxedKernel
from .iopub import IOPub
from .wire import Wire

# Signatures that are remembered, so that a message cannot be sent a second time by somebody who only saw it. Stock
# keeps 65,536 of them, which is 10 MB for a kernel that has lived long.
_REPLAYS_KNOWN = 8192
_CLOSE_S = 5.0
_BIND_S = 2.0


class PortTaken(Exception):
    """Another program has a port that the client has chosen for this kernel."""

    def __init__(self, port: int) -> None:
        super().__init__(
            f"port {port} was free when it was chosen for this kernel, and another program has it now; start the "
            "kernel again"
        )


class _NoDisplayHook:
    """Stands where ipykernel's application keeps the front's display hook; nothing is displayed by the front."""

    get_execution_count = staticmethod(lambda: 0)


class SandboxApp(IPKernelApp):
    """Sockets, heartbeat, control thread and parent poller as in stock; the kernel behind them is ours."""

    name = "sandboxed-python"
    resolved = AnyTrait(Resolved())
    zygote = AnyTrait(None)
    denials = AnyTrait(None)
    plans = AnyTrait(())
    group = AnyTrait(None)
    # Stock's would import jupyter_client's clients and managers. The front makes no client of itself.
    blocking_class = AnyTrait(None)

    def initialize(self, argv: list[str] | None = None) -> None:
        """Open the sockets and make the kernel."""
        self.kernel_class = SandboxedKernel
        # The class attribute was computed at import, before the launcher's environment was read back.
        self.parent_handle = int(os.environ.get("JPY_PARENT_PID") or 0)
        super().initialize(argv)
        if self.session is not None:
            self.session.digest_history_size = _REPLAYS_KNOWN

    def parse_command_line(self, argv: list[str] | None = None) -> None:
        """As in stock; for what nearly every client passes without the parser of all its sixty options."""
        if argv is not None and len(argv) == 2 and argv[0] == "-f":
            self.cli_config = Config({"IPKernelApp": {"connection_file": argv[1]}})
            self.update_config(self.cli_config)
        else:
            super().parse_command_line(argv)

    # ---- what stock would execute in this process, in the name of the person or of the notebook's folder

    def load_config_file(self, *_args: Any, **_kwargs: Any) -> None:
        """Leave out ``ipython_config.py``: it is code, and it configures shells, which are not run here."""

    def init_path(self) -> None:
        """Leave out the notebook's folder: a module planted there must never be imported by the front."""

    def init_extensions(self) -> None:
        """Extensions belong to a shell."""

    def init_code(self) -> None:
        """Start-up files belong to a shell."""

    def init_gui_pylab(self) -> None:
        """Backends belong to a shell."""

    def init_pdb(self) -> None:
        """The front is not debugged by its users."""

    def init_io(self) -> None:
        """Keep this process's own standard streams: what it writes is for the log, not for a notebook."""
        self.displayhook = _NoDisplayHook()

    def reset_io(self) -> None:
        """Nothing was redirected."""

    # ---- sockets

    def _session_default(self) -> Wire:
        return Wire(parent=self)

    def _ip_default(self) -> str:
        """Loopback, if the connection file names no other: stock looks at all interfaces before it says the same."""
        return str(super()._ip_default()) if self.transport == "ipc" else "127.0.0.1"

    def _bind_socket(self, s: Any, port: int) -> int:
        """As in stock. Clients choose ports and leave them; whoever looks for free ones may have one for a moment.

        Raises:
            PortTaken: another program keeps it.
        """
        give_up = time.monotonic() + _BIND_S
        while True:
            try:
                return int(super()._bind_socket(s, port))
            except zmq.ZMQError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                if time.monotonic() > give_up:
                    raise PortTaken(port) from error
            time.sleep(0.02)

    def init_control(self, context: zmq.Context[Any]) -> None:
        """As in stock, but with no thread for subshells: their queues are on the main loop, see `shells`."""
        super().init_control(context)
        self.shell_channel_thread = None

    def init_iopub(self, context: zmq.Context[Any]) -> None:
        """Bind IOPub; it is served by the main loop, see `IOPub`."""
        socket = context.socket(zmq.XPUB)
        socket.linger = 1000
        self._apply_curve_server_options(socket)
        self.iopub_port = self._bind_socket(socket, self.iopub_port)
        self.configure_tornado_logger()
        self.iopub_thread = self.iopub_socket = IOPub(socket, self.session)

    def close(self) -> None:
        """Close the sockets, or end without that: ZeroMQ waits for ever for one that anything still holds."""
        last_resort = threading.Timer(_CLOSE_S, os._exit, [0])
        last_resort.daemon = True
        try:
            last_resort.start()
        except RuntimeError:  # from Python 3.12 on no thread begins while the interpreter ends; SIGALRM ends it then
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, _CLOSE_S)
        super().close()
        last_resort.cancel()
        signal.setitimer(signal.ITIMER_REAL, 0)

    def init_kernel(self) -> None:
        """Make the kernel and hand it the sandbox."""
        # (The application's logger takes all, and its handler drops what is below the level: after a record was made of
        # each reply.)
        self.log.setLevel(self.log_level)
        super().init_kernel()
        self.kernel.attach(self.zygote, self.resolved, self.denials, self.plans)
        self.kernel.sandbox.supervisor.group = self.group

    def _config_default(self) -> Config:
        return Config()
