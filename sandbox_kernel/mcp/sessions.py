"""The sandboxes of a server: which caller has which, how many there may be, and when one that nobody uses ends."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ..api import AsyncSandbox
from ..errors import PolicyRefusal
from ..quantities import show_seconds

_REMEMBERED = 1000


@dataclass(frozen=True)
class Caller:
    """Who calls.

    Attributes:
        owner: whose token it was.
        connection: what this client keeps from one call to the next, or "" when it keeps nothing: then the session
            is named in every call. A session is never given to another owner, nor to another connection.
    """

    owner: str
    connection: str = ""


@dataclass(eq=False)
class Place:
    """A session.

    Attributes:
        handle: its name for the clients; unguessable.
        note: what the next answer has to tell besides, such as that an earlier session has ended.
        root: the session that it was forked from, at the very first; it lives as long, and no longer.
    """

    sandbox: AsyncSandbox
    caller: Caller
    handle: str
    note: str = ""
    root: Place | None = None
    users: int = 0
    timer: asyncio.TimerHandle | None = None


class Sessions:
    """All sessions of a server.

    Args:
        make: gives a sandbox that is not started.
        most: how many there may be at a time.
        idle_s: seconds after the last call at which one is ended.
    """

    def __init__(self, make: Callable[[], AsyncSandbox], *, most: int = 8, idle_s: float = 1800.0) -> None:
        self._make, self._most, self._idle_s = make, most, idle_s
        self._places: dict[str, Place] = {}
        self._forking = 0  # that are not there yet
        self._own: dict[Caller, Place] = {}  # the one that a connection uses when it names none
        self._ended: OrderedDict[tuple[str, str], str] = OrderedDict()  # (owner, handle or connection): why
        self._closing: set[asyncio.Task[None]] = set()
        self._spare: AsyncSandbox | None = None

    def __len__(self) -> int:
        return len(self._places)

    async def prepare(self) -> None:
        """Start the sandbox of the first session: what prevents it is known before anybody calls.

        Raises:
            SandboxError: it cannot be had.
        """
        self._spare = self._make()
        await self._spare.start()

    async def close(self) -> None:
        """End all of them."""
        for place in list(self._places.values()):
            self.end(place, "the server has ended")
        if self._spare is not None:
            await self._spare.close()
        if self._closing:
            await asyncio.wait(self._closing)

    @asynccontextmanager
    async def use(self, caller: Caller, handle: str = "") -> AsyncIterator[Place]:
        """The session that a caller means, for one call; without a name its own, or a new one.

        Raises:
            PolicyRefusal: it has none of that name, or there are too many.
            SandboxError: it cannot be started.
        """
        place = self._named(caller, handle) if handle else self._own.get(caller) or self._new(caller)
        places = [place] if place.root is None else [place, place.root]
        for used in places:
            used.users += 1
            if used.timer is not None:
                used.timer.cancel()
                used.timer = None
        try:
            try:
                await place.sandbox.start()
            except BaseException:
                self.end(place, "it could not be started")
                raise
            yield place
        finally:
            for used in places:
                used.users -= 1
                if used.users == 0 and used.handle in self._places:
                    used.timer = asyncio.get_running_loop().call_later(self._idle_s, self._expire, used)

    async def fork(self, place: Place) -> Place:
        """A further session that begins with the variables of this one.

        Raises:
            PolicyRefusal: there are too many.
            SandboxError: it cannot be copied.
        """
        self.room()
        self._forking += 1
        try:
            sandbox = await place.sandbox.fork()
        finally:
            self._forking -= 1
        branch = self._add(sandbox, place.caller, place.root or place)
        branch.timer = asyncio.get_running_loop().call_later(self._idle_s, self._expire, branch)
        return branch

    def _add(self, sandbox: AsyncSandbox, caller: Caller, root: Place | None = None) -> Place:
        place = Place(sandbox, caller, secrets.token_urlsafe(16), root=root)
        self._places[place.handle] = place
        return place

    def room(self) -> None:
        """Whether there may be one more.

        Raises:
            PolicyRefusal: there may not.
        """
        if len(self._places) + self._forking >= self._most:
            raise PolicyRefusal(
                f"All {self._most} sessions of this server are in use, so no further one was started. Go on in one "
                "that you have, or end one with end_session; one that nobody uses ends after "
                f"{show_seconds(self._idle_s)}."
            )

    def end(self, place: Place, reason: str) -> None:
        """End a session, with what runs in it, and with those that were forked from it."""
        if self._places.pop(place.handle, None) is None:
            return
        for branch in [branch for branch in self._places.values() if branch.root is place]:
            self.end(branch, "the session that it was forked from has ended")
        if place.timer is not None:
            place.timer.cancel()
        names = [place.handle]
        if self._own.get(place.caller) is place:
            del self._own[place.caller]
            names.append(place.caller.connection)
        for name in names:
            self._ended[place.caller.owner, name] = reason
        while len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)
        task = asyncio.ensure_future(place.sandbox.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def leave(self, caller: Caller) -> None:
        """A client has gone: its sessions end."""
        for place in [place for place in self._places.values() if place.caller == caller]:
            self.end(place, "its client has left")

    def _expire(self, place: Place) -> None:
        if place.users == 0:
            self.end(place, f"nobody used it for {show_seconds(self._idle_s)}")

    def _named(self, caller: Caller, handle: str) -> Place:
        place = self._places.get(handle)
        # The session of somebody else and one that never was are told apart by nothing.
        if place is not None and place.caller == caller:
            return place
        reason = self._ended.get((caller.owner, handle))
        why = f"It has ended: {reason}. Its variables are lost." if reason else "Nobody has started it."
        raise PolicyRefusal(f"There is no session {handle!r}. {why} Leave `session` out to start a fresh one.")

    def _new(self, caller: Caller) -> Place:
        self.room()
        sandbox, self._spare = self._spare or self._make(), None
        place = self._add(sandbox, caller)
        if caller.connection:
            self._own[caller] = place
            reason = self._ended.pop((caller.owner, caller.connection), None)
            if reason:
                place.note = f"The session of your earlier calls has ended: {reason}. Its variables are lost."
        return place
