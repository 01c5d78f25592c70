"""Memory for values that are too large for a message. The front makes it, sizes it and seals it.

No limit counts memory that no process has mapped. So what a worker writes into stays its own only until the value is
there: else it could keep the descriptors of many, and more than all of the machine's memory with them. What it could
keep of a value that is used where it lies is counted (`Lent`) once the front has dropped it.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from ..channel.framing import Bytes
from ..errors import ProtocolError
from .lent import Lent

_MFD_NOEXEC_SEAL = 0x0008  # Linux 6.3
_FINAL = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


def memory(size: int) -> int:
    """New memory of that size, which nobody can enlarge, nor execute where the kernel knows how to forbid it."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        fd = os.memfd_create("frame", flags | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        fd = os.memfd_create("frame", flags)
    try:
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    except BaseException:
        os.close(fd)
        raise
    return fd


def filled(pieces: Sequence[Bytes]) -> int:
    """Memory with this content, which nobody can change."""
    fd = memory(sum(map(len, pieces)))
    try:
        at = 0
        for piece in pieces:
            rest = memoryview(piece).cast("B")
            while rest:
                done = os.pwrite(fd, rest, at)
                at += done
                rest = rest[done:]
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _FINAL)
    except BaseException:
        os.close(fd)
        raise
    return fd


class Room:
    """Memory that the worker writes one value into.

    Args:
        size: in bytes.
        worker: the number of the one that has it.

    Attributes:
        far: the worker's descriptor; whoever sends it closes it.
    """

    def __init__(self, size: int, worker: int) -> None:
        self.size, self.worker, self._is_final = size, worker, False
        fd = memory(size)
        try:
            # Each opened anew: the kernel tells whether there are other openings, not whether there are copies of one.
            self._near = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
            try:
                self.far = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
            except BaseException:
                os.close(self._near)
                raise
        finally:
            os.close(fd)

    def take(self, lent: Lent) -> memoryview:
        """The content, which nobody else can change, and the end of the room.

        Args:
            lent: counts what the worker could keep of it.

        Raises:
            ProtocolError: the worker still has a way to write to it, or has cut it short.
        """
        try:
            watch = lent.watch(self._near) if _alone(self._near) else -1
            if watch < 0:
                return memoryview(self._copied())
            content = self._mapped()
            lent.taken(watch, self.size, content)
            return memoryview(content)
        finally:
            self.close()

    def _mapped(self) -> mmap.mmap:
        # Sealed although nobody has it open: a name for it (O_PATH), which does not count as that, can open it again.
        self._seal(_FINAL)
        self._is_final = True
        if os.fstat(self._near).st_size != self.size:
            raise ProtocolError("the memory of a value was cut short")
        options: dict[str, Any] = {"flags": mmap.MAP_PRIVATE, "prot": mmap.PROT_READ | mmap.PROT_WRITE}
        if sys.version_info >= (3, 13):
            options["trackfd"] = False  # a descriptor for each value that lives would be too many
        return mmap.mmap(self._near, self.size, **options)

    def _seal(self, seals: int) -> None:
        try:
            fcntl.fcntl(self._near, fcntl.F_ADD_SEALS, seals)
        except OSError as error:
            # EBUSY: mapped for writing, which no sender of ours leaves behind.
            raise ProtocolError(f"the memory of a value was kept open for writing ({error.strerror})") from error

    def _copied(self) -> mmap.mmap:
        """For a room that somebody else has open: a process that was forked while it was written to, say."""
        self._seal(fcntl.F_SEAL_WRITE)
        content = mmap.mmap(-1, self.size)
        view = memoryview(content)
        at = 0
        while at < self.size:
            done = os.preadv(self._near, [view[at:]], at)
            if not done:
                raise ProtocolError("the memory of a value was cut short")
            at += done
        return content

    def close(self) -> None:
        """The end of the room; idempotent. Whoever keeps a descriptor of it, or a mapping, keeps no memory with it.

        Raises:
            ProtocolError: the worker has forbidden that.
        """
        near, self._near = self._near, -1
        if near < 0:
            return
        try:
            if not self._is_final:
                os.ftruncate(near, 0)  # (holes would not do: who maps them and looks fills them)
        except OSError as error:
            raise ProtocolError(f"the memory of a value cannot be given back ({error.strerror})") from error
        finally:
            os.close(near)


def _alone(fd: int) -> bool:
    """Whether nobody else has this file open, or mapped: a lease for writing is given to such an owner only.

    (Somebody may have a name for it all the same, and open it at any time.)
    """
    try:
        # Who opens it just then sends the owner of the lease a signal. The usual one, SIGIO, would end this process.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:  # EAGAIN; or this kernel gives none, then it is copied
        return False
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True
