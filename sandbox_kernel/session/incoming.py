"""What the worker sends while it works: text, displays, questions, values and replies. Each is charged, then shown."""

from __future__ import annotations

from ..channel import schema
from ..errors import BROKEN_STATUS, ProtocolError, WorkerLost
from ..report import describe_exit
from .exchange import Exchange
from .limits import short_error, short_reply
from .requests import Requests
from .run import Run, Runs
from .sink import Sink
from .supervisor import Supervisor


class Incoming:
    """Handles the messages of the worker, which are decoded, bounded and hostile.

    Args:
        runs, requests, supervisor: of the session.
        exchange: takes values and calls of host functions.
        sink: receives what is shown.

    Attributes:
        last_executed: the main shell's latest cell; text that comes between the cells is its.
    """

    def __init__(
        self, runs: Runs, requests: Requests, supervisor: Supervisor, exchange: Exchange, sink: Sink
    ) -> None:  # fmt: skip
        self._runs, self._requests, self._supervisor, self._sink = runs, requests, supervisor, sink
        self._exchange = exchange
        self.last_executed = ""

    def pressed(self) -> bool:
        """Whether nothing may be read from the worker now.

        A worker that goes beyond its pace is made to wait. Between cells, while somebody waits for a reply, it may
        not: the reply stands behind what it writes. (For that of a comm message nobody waits.)
        """
        runs = self._runs
        if not (runs.beside or runs.main.output.must_wait()):  # the usual case, and it is asked for each packet
            return self._sink.pressed()
        cells = runs.cells()
        paced = bool(cells) or all(pending.op == "comm" for pending in self._requests.pending.values())
        return self._sink.pressed() or (paced and any(run.output.must_wait() for run in cells or [runs.main]))

    def raw(self, name: str, text: str) -> None:
        """Text that came by the pipes."""
        self._text(self._runs.charged(self._runs.main.id).id or self.last_executed, name, text, len(text))

    def message(self, message: schema.Message, buffers: list[memoryview], size: int) -> None:
        """A message.

        Raises:
            ProtocolError: it is not in order.
        """
        if isinstance(message, schema.Stream):
            self._text(message.parent, message.name, message.text, size)
        elif isinstance(message, schema.Publish):
            self._publish(message, buffers, size)
        elif isinstance(message, schema.Reply):
            self._reply(message, buffers, size)
        elif isinstance(message, schema.InputRequest) and message.parent in self._requests.pending:
            # (For a cell that is over there is nobody to ask.)
            self._runs.charged(message.parent).output.charge(size)
            self._sink.ask(message)
        elif isinstance(message, (schema.Room, schema.Value, schema.HostCall)):
            self._runs.main.output.charge(0 if isinstance(message, schema.Value) else size)
            self._exchange.receive(message, buffers)

    def _text(self, parent: str, name: str, text: str, size: int) -> None:
        run = self._runs.charged(parent)
        run.output.text(parent, name, text, size)
        self._judge_output(run)

    def _judge_output(self, run: Run) -> None:
        error = run.output.excess() if run.id and run.limit is None else None
        if error is not None:
            self._runs.over(error, (run.id,), gently=True)

    def _publish(self, message: schema.Publish, buffers: list[memoryview], size: int) -> None:
        copies = [bytes(b) for b in buffers]
        run = self._runs.charged(message.parent)
        if message.msg_type != "error" or message.parent != run.id or run.error_shown is not None:
            run.output.message(message, copies, size)
            self._judge_output(run)
            return
        # The cell's last word.
        if run.limit is not None:
            return  # the KeyboardInterrupt that the limit caused; the limit's own error is told instead
        run.output.release()
        if size > run.output.room():
            message.content = short_error(message.content)
        run.error_shown = (message.content.get("ename"), message.content.get("evalue"))
        self._sink.publish(message, copies)

    def _reply(self, message: schema.Reply, buffers: list[memoryview], size: int) -> None:
        pending = self._requests.answered(message)
        if pending is None:
            return
        if message.value:
            if pending.op not in schema.VALUE_OPS:
                raise ProtocolError("a value that nobody has asked for")
            self._exchange.receive(schema.Value(message.id), buffers)
        content = schema.check_reply(pending.op, message.content)
        self._supervisor.counted(pending.op, message.execution_count)
        if pending.op in ("execute", "call") and self._supervisor.worker is not None:
            self._supervisor.worker.drain_pipes()
        if pending.op == "execute":
            output = self._runs.charged(message.id).output
            content = short_reply(content, size, output.room(), output.rule)
            output.release()
        self._sink.flush()
        pending.future.set_result(content)
        if message.last and pending.op == "execute":
            # It ends by itself. But so nothing is sent to it any more, from now on, nor waits for it if it lied.
            error = WorkerLost(describe_exit(BROKEN_STATUS << 8))
            error.data["status"] = BROKEN_STATUS
            self._supervisor.kill(error)
