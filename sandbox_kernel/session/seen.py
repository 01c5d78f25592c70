"""What a file was like when it was looked at, and the mark by which a later session knows what a sandbox has made."""

from __future__ import annotations

import contextlib
import os

from ..frozen import Frozen

_MARK = "user.sandbox_kernel.kept"
# How a file is opened that hostile code may have put there: no link is followed, no FIFO or terminal waited for.
OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Seen(Frozen):
    """A file's identity and state.

    Not the time of its last change of status, which giving it a name sets, too.
    """

    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Seen:
        """What `os.stat` found."""
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    def words(self) -> bytes:
        """The same as text by which a later session can tell it."""
        # Not the device: its number is another one after a restart of the machine.
        return f"{self.inode} {self.size} {self.modified_ns}".encode()

    def mark(self, file: int) -> None:
        """Write into a file, which is like this, that a sandbox has made it; nothing where there is no place for it."""
        with contextlib.suppress(OSError):
            os.setxattr(file, _MARK, self.words())

    def marked(self, name: str, folder: int | None = None) -> bool:
        """Whether an ordinary file, which is like this, was made by a sandbox, and nobody has touched it since."""
        with contextlib.suppress(OSError):
            file = os.open(name, OPEN, dir_fd=folder)
            try:
                return os.getxattr(file, _MARK) == self.words()
            finally:
                os.close(file)
        return False
