"""Lets a private layer forget what it has looked up, so that cells see what other programs do in the notebook's folder.

overlayfs counts on a lower folder that is at rest: a file that is replaced there, as editors do it, or made after
somebody looked for it in vain, would stay as it was for as long as the machine's kernel remembers the name. A
reconfiguration that changes nothing drops every remembered name that is not in use. The right to it is CAP_SYS_ADMIN
over the user namespace in which the layer was mounted, which the front has as root, or as the owner of that
namespace: so it needs no helper inside the sandbox, and takes no byte from there. (Measured: 0.06 ms, and 0.2 ms for
each hundred names that cells have looked up since the last time.) What stays is a name whose file somebody in the
sandbox holds open.

The kernel goes on until no name is left, and nothing can stop it: many processes that look for new names all the time
keep it at that for as long as they like. So it is always a thread that is in there, never more than one, and no cell
waits for it without end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from .. import linux
from .helper import BRIEF_S, Helper
from .mirror import SETTLED_NS, Names, descend
from .paced import Paced

BUSY_S = 0.25  # between two times while a cell runs: it may be waiting for a file
IDLE_S = 1.0  # between cells: threads, and callbacks of widgets
PATIENCE_S = 0.5  # how long a cell waits for it
FOLDERS = 200  # of the layer, whose time of change is kept up
REFUSED = "What other programs change in the notebook's folder may show late: its private layer cannot look again ({})."


class Lookups:
    """What one layer has looked up.

    Args:
        context: of its file system, from `linux.fspick`; this object owns it. With `picks` it is the root of the file
            system, of which a context is picked each time: none is held meanwhile.
        layer: descriptor of its upper folder; this object owns it.
        lower: the notebook's folder.

    Attributes:
        folders: in the layer, below its top.
    """

    def __init__(self, context: int, layer: int, lower: str, *, picks: bool = False) -> None:
        self._lock = threading.Lock()  # of the descriptors; whoever waits for the kernel has copies of them
        self._context, self._layer, self._lower, self._picks = context, layer, lower, picks
        self._changed: dict[Names, int] = {}  # when each folder had changed last, on the disk
        self._paced: Paced | None = None
        self._helper = Helper(self.forget)
        self._free = os.fstatvfs(layer).f_ffree
        self.folders: Sequence[Names] = ()

    @classmethod
    def of(cls, context: int, layer: int, lower: str, details: dict[str, Any], zygote: int = 0) -> Lookups:
        """With copies of the descriptors. Where it does not work that is added to the notes among the `details`.

        Args:
            zygote: its process id, before any cell has run; 0: use the context.
        """
        root = _root(zygote, lower) if zygote else -1
        lookups = cls(root if root >= 0 else os.dup(context), os.dup(layer), lower, picks=root >= 0)
        try:
            lookups._forget()
        except OSError as error:
            details["notes"] = [*details.get("notes", ()), REFUSED.format(error.strerror)]
        return lookups

    def copy(self) -> Lookups:
        """Another one for the same layer."""
        with self._lock:
            return Lookups(os.dup(self._context), os.dup(self._layer), self._lower, picks=self._picks)

    def follow(self, loop: asyncio.AbstractEventLoop, busy: Callable[[], bool]) -> None:
        """Forget from time to time until `close`; returns at once.

        Args:
            busy: whether cells run.
        """
        self._paced = Paced(loop, lambda: self._in_a_thread(loop), lambda: BUSY_S if busy() else IDLE_S)

    @property
    def written(self) -> bool:
        """Whether there is anything in the layer that was not there when this object was made."""
        return self._layer >= 0 and os.fstatvfs(self._layer).f_ffree != self._free

    async def look_again(self) -> None:
        """`forget`, for before a cell; returns after `PATIENCE_S` at the latest."""
        loop, helper = asyncio.get_running_loop(), self._helper
        give_up = loop.time() + PATIENCE_S
        if helper.busy:  # it may have been at the names already
            await asyncio.wait([helper.end(loop)], timeout=PATIENCE_S)
        helper.begin()
        if not helper.wait(BRIEF_S if give_up - loop.time() > BRIEF_S else 0.0):
            await asyncio.wait([helper.end(loop)], timeout=max(0.0, give_up - loop.time()))

    def _in_a_thread(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[float]:
        self._helper.begin()
        return self._helper.end(loop)

    def forget(self) -> float:
        """Let each name be looked up anew. Blocks for as long as cells have made that take; returns how long it did.

        Nothing is done after `close`, or where the machine refuses it.
        """
        began = time.perf_counter()
        with contextlib.suppress(OSError):
            self._forget()
        return time.perf_counter() - began

    def _forget(self) -> None:
        with self._lock:
            if self._context < 0:
                return
            context, layer = os.dup(self._context), os.dup(self._layer)
        try:
            if self._picks:
                _reconfigure(context)
            else:
                linux.fs_reconfigure(context)
            for at in ((), *self.folders[:FOLDERS]):
                self._stamp(layer, at)
        finally:
            os.close(context)
            os.close(layer)

    def _stamp(self, layer: int, at: Names) -> None:
        """Let a folder that lies in both look changed when it has changed on the disk.

        It shows the time of the layer's, by which Python's importer tells whether there may be new modules.
        """
        with contextlib.suppress(OSError):
            changed = os.stat(os.path.join(self._lower, *at), follow_symlinks=False).st_mtime_ns
            if self._changed.get(at) == changed:
                return
            folder = descend(layer, at)
            try:
                os.utime(folder)
            finally:
                os.close(folder)
            self._changed[at] = changed if time.time_ns() - changed > SETTLED_NS else 0

    def close(self) -> None:
        """Release the descriptors; idempotent."""
        if self._paced is not None:
            self._paced.stop()
        with self._lock:
            if self._context >= 0:
                os.close(self._context)
                os.close(self._layer)
            self._context = self._layer = -1
        self._helper.close()


def _root(zygote: int, folder: str) -> int:
    """The layer's root, if this process may pick a context of it by itself, as root may; else -1."""
    if os.geteuid() != 0:
        return -1
    try:
        root = os.open(f"/proc/{zygote}/root{folder}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return -1
    with contextlib.suppress(OSError):
        if linux.fs_type(root) == linux.OVERLAYFS_MAGIC:
            _reconfigure(root)
            return root
    os.close(root)
    return -1


def _reconfigure(root: int) -> None:
    context = linux.fspick("", root)
    try:
        linux.fs_reconfigure(context)
    finally:
        os.close(context)
