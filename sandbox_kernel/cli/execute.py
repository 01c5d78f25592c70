"""Runs one notebook on a kernel and reports every cell while it runs."""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import time
import warnings
from pathlib import Path
from typing import Any, Protocol

import nbformat
import zmq
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from ..launcher import POLICY_VARIABLE

START_S = 120  # a first start on a loaded machine compiles every module


class Failed(Exception):
    """A notebook did not run as expected.

    Attributes:
        notebook: as far as it was executed; None when it could not be read at all.
    """

    def __init__(self, message: str, notebook: nbformat.NotebookNode | None = None) -> None:
        super().__init__(message)
        self.notebook = notebook


class Listener(Protocol):
    """Is told what happens to a notebook, see `show.Terminal`."""

    def notebook(self, path: Path, notebook: Any) -> None: ...
    def cell(self, cell: Any) -> None: ...
    def output(self, out: Any, *, expected: bool) -> None: ...
    def cell_done(self, *, seconds: float, failed: bool, expected: bool) -> None: ...
    def notebook_done(self) -> None: ...


class EncryptedKernelManager(AsyncKernelManager):
    """A kernel manager that hands the kernel keys for encryption where the kernel can use them.

    Jupyter's default is plain text over loopback, where every process of the machine may listen in as root.
    """

    def __init__(self, **traits: Any) -> None:
        if zmq.has("curve") and "transport_encryption" in self.trait_names():
            traits.setdefault("transport_encryption", "auto")
        super().__init__(**traits)


class LiveClient(NotebookClient):
    """nbclient, telling a terminal what happens."""

    terminal: Listener
    policy: str | None = None
    started: float = 0.0
    stopped: bool = False

    def output(
        self, outs: list[nbformat.NotebookNode], msg: dict[str, Any], display_id: str | None, cell_index: int
    ) -> nbformat.NotebookNode | None:
        """Show an output at once, besides keeping it in the notebook."""
        out: nbformat.NotebookNode | None = super().output(outs, msg, display_id, cell_index)
        if out is not None:
            self.terminal.output(out, expected=self._may_fail(cell_index))
        return out

    def cell_starts(self, cell: nbformat.NotebookNode, cell_index: int) -> None:
        """Show the cell before it runs (a hook of nbclient, called for text cells, too)."""
        self.started = time.monotonic()
        self.terminal.cell(cell)

    def cell_executed(
        self, cell: nbformat.NotebookNode, cell_index: int, execute_reply: dict[str, Any]
    ) -> None:
        """Close the cell's account (a hook of nbclient)."""
        failed = execute_reply["content"]["status"] == "error"
        self.terminal.cell_done(
            seconds=time.monotonic() - self.started, failed=failed, expected=self._may_fail(cell_index)
        )

    def _may_fail(self, cell_index: int) -> bool:
        tags = self.nb.cells[cell_index].metadata.get("tags", [])
        return bool(self.allow_errors) or "raises-exception" in tags

    async def async_start_new_kernel(self, **kwargs: Any) -> None:
        """Start the kernel, with signal handlers of our own.

        nbclient has just set its own. They end the kernel while the run goes on, which then fails in ways
        that depend on the moment. Cancelling the run leaves one ending: the context manager's.
        """
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def stop() -> None:
            self.stopped = True
            if task is not None:
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        if self.policy is not None:
            kwargs["env"] = {**os.environ, POLICY_VARIABLE: self.policy}
        await super().async_start_new_kernel(**kwargs)


def execute(
    path: Path, terminal: Listener, *, kernel: str, timeout_s: int | None, allow_errors: bool, policy: str | None = None
) -> nbformat.NotebookNode:
    """Run all cells of a notebook, with the notebook's folder as the kernel's working folder.

    Args:
        path: the notebook; it is not changed.
        terminal: is told about every cell and output.
        kernel: name of the kernelspec, whatever the notebook's metadata says.
        timeout_s: longest time for one cell; None for no limit.
        allow_errors: go on after a failing cell and count it as expected.
        policy: for the kernel, a preset or an absolute path; None: what it has by itself.

    Returns:
        The executed notebook.

    Raises:
        Failed: unreadable notebook, a cell that failed unexpectedly or took too long, a kernel that ended.
        KeyboardInterrupt: the user stopped it.
    """
    notebook = read(path)
    client = LiveClient(
        notebook,
        kernel_name=kernel,
        timeout=timeout_s,
        startup_timeout=START_S,
        allow_errors=allow_errors,
        kernel_manager_class=EncryptedKernelManager,
        resources={"metadata": {"path": str(path.resolve().parent)}},
    )
    client.terminal, client.policy = terminal, policy
    client.on_cell_start = client.cell_starts
    client.on_cell_executed = client.cell_executed
    terminal.notebook(path, notebook)
    try:
        asyncio.run(client.async_execute())
    except CellExecutionError as error:
        raise Failed(f"{path}: a cell failed: {error.ename}: {error.evalue}", notebook) from error
    except CellTimeoutError as error:
        problem = f"a cell took longer than {timeout_s} s; the rest was not run."
        raise Failed(f"{path}: {problem}", notebook) from error
    except (DeadKernelError, RuntimeError, OSError, asyncio.CancelledError) as error:
        if client.stopped:
            raise KeyboardInterrupt from error
        if not client.started:
            raise Failed(f"{path}: the kernel did not start, so no cell was run: {error}") from error
        raise Failed(f"{path}: the kernel ended: {error}", notebook) from error
    finally:
        # nbclient leaves it behind when the kernel does not start; at exit it then fails with a traceback.
        atexit.unregister(client._cleanup_kernel)
    terminal.notebook_done()
    return notebook


def read(path: Path) -> nbformat.NotebookNode:
    """Read a notebook of any format version, as the newest.

    Raises:
        Failed: there is none, or it is none.
    """
    try:
        with warnings.catch_warnings():
            # A missing cell id is a warning that nobody at a terminal can act on; nbformat adds the id.
            warnings.simplefilter("ignore")
            notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)
            _, notebook = nbformat.validator.normalize(notebook)
            nbformat.validate(notebook)
    except OSError as error:
        raise Failed(f"{path} cannot be read: {error.strerror}.") from error
    except (nbformat.ValidationError, ValueError, AttributeError, KeyError, TypeError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise Failed(f"{path} is not a notebook: {reason}") from error
    for cell in notebook.cells:
        if cell.cell_type == "code":
            # A cell that this run does not reach must not look as if it had run.
            cell.outputs, cell.execution_count = [], None
    return notebook
