"""Going back, and trying several ways from one state, for `core`."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any, Self

from ..arguments import check_arguments
from ..session.copies import NAME_RULE, checkpoint_name
from ..session.session import Session
from .recorder import Recorder
from .tools import Tools


def _checked(name: str) -> str:
    if not checkpoint_name(name):
        raise ValueError(f"{name!r} cannot name a checkpoint. {NAME_RULE}")
    return name


class Branches:
    """What can be done with the state of a session as a whole.

    Attributes:
        _branches: the sandboxes that were forked from this one, or from those.
    """

    _session: Session | None
    _recorder: Recorder
    _tools: Tools
    _lock: asyncio.Lock
    _starting: asyncio.Future[None] | None
    _closed: bool
    _branches: weakref.WeakSet[Any]

    async def _started(self) -> Session:
        raise NotImplementedError

    async def close(self) -> None:
        """End it with everything inside; idempotent. A cell that runs ends with `WorkerLost`.

        A sandbox that was not forked from another one takes those along that were forked from it.
        """
        raise NotImplementedError

    def _open_audit(self) -> None:
        raise NotImplementedError

    def _twin(self) -> Self:
        """An object like this one, without a session."""
        raise NotImplementedError

    async def checkpoint(self, name: str) -> None:
        """Keep the state of the session under a name, for `rollback`. An older state of that name is given up.

        There may be 8. They are given up when the session needs their memory, which `rollback` then says.

        Raises:
            CopyRefused: the session cannot be copied, or there are too many; the error says why.
            ValueError: it cannot be a name.
        """
        session = await self._started()
        async with self._lock:
            await session.checkpoints.name(_checked(name))

    @check_arguments
    async def rollback(self, to: int | str = 1) -> None:
        """Undo the last cells, or go back to a checkpoint: go on from the copy that was left then.

        Copies are left between cells while they are cheap, and few are kept. Files stay as they are.

        Args:
            to: how many cells to undo, or the name of a checkpoint.

        Raises:
            NoCheckpoint: there is none of that state; the error says of which there are.
            ValueError: `to` is a number below 1, or cannot be a name.
        """
        if isinstance(to, str):
            _checked(to)
        session = await self._started()
        async with self._lock:
            checkpoints = session.checkpoints
            await checkpoints.rollback(to if isinstance(to, str) else checkpoints.cell - to)
            session.forget_loss()

    async def fork(self) -> Self:
        """A sandbox of its own that begins with the variables of this one, as they are between two cells.

        Both share what memory they do not write to, their files, and the limits: ``limits.memory`` and
        ``limits.processes`` count all of them together, and the one that holds most ends when one is passed. They can
        run cells at the same time. Closing a branch ends only it; closing the sandbox that was there first ends all.

        Raises:
            CopyRefused: the session has threads, child processes, or a library that cannot be copied.
            SandboxError: the copy did not begin.
        """
        session = await self._started()
        async with self._lock:
            twin = self._twin()
            twin._session = await session.fork(twin._recorder)
            twin._session.exchange.on_call = twin._tools.call
            twin._open_audit()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        twin._starting = done
        twin._branches = self._branches
        self._branches.add(twin)
        return twin

    @check_arguments
    async def adopt(self, branch: Self) -> None:
        """Go on from the variables of a branch, in place of this sandbox's own; the branch is closed.

        Raises:
            CopyRefused: the branch cannot be copied; both are left as they are.
            ValueError: the two were not forked from the same sandbox.
        """
        session, other = await self._started(), await branch._started()
        if other is session or other.seat.family is not session.seat.family:
            raise ValueError("only a branch of the same sandbox can be adopted")
        # In an order of their own: two that adopt each other would else wait for ever.
        first, second = sorted((self, branch), key=id)
        async with first._lock, second._lock:
            await self._started(), await branch._started()  # neither was closed meanwhile
            await session.adopt(other)
        if other.seat is not other.seat.family.founder:
            await branch.close()

    async def _close_branches(self) -> None:
        for branch in list(self._branches):
            if branch is not self:
                await branch.close()
