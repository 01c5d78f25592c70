"""Running one cell, for `core`: what it gave, and its line in the audit log."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

from ..auditing import Audit
from ..code_rules import CodeGate
from ..errors import CellError, FrameRefused, SandboxError
from ..policy import Resolved
from ..session.ending import end_cell
from ..session.session import Plan, Session
from .calls import Calls
from .execution import Execution, ExecutionError
from .outcome import exit_code, failed
from .recorder import Emit, Recorder

_DATA_BYTES = 8 * 1024 * 1024  # of a cell's result that is fetched unasked


class Cells(Calls):
    """What happens between the moment when a cell may run and its `Execution`."""

    resolved: Resolved
    _recorder: Recorder
    _code_gate: CodeGate
    _plans: list[Plan]

    def _open_audit(self) -> None:
        """Once the sandbox's first process has been started: it has none of the log's key."""
        policy = self.resolved.policy
        seen = [folder for folder in (self._plans[0].workspace, *policy.files.read) if folder]
        self._audit = Audit(policy.audit.file, seen)
        self._audit_name = f"api-{secrets.token_hex(4)}"

    def _note(self, code: str, execution: Execution, error: SandboxError | None) -> None:
        """A line for a cell."""
        outcome = execution.error.name if execution.error is not None else "ok"
        self._audit_line(code, outcome, error, execution.denials, execution.duration_s)

    async def _execute(
        self, session: Session, execution: Execution, code: str, timeout: float | None, emit: Emit
    ) -> None:
        refused = self._audit.refusal() or await self._code_gate.refusal(code, {})
        if refused is not None:
            failed(execution, refused)
            self._note(code, execution, refused)
            return
        error: SandboxError | None = None
        loop, recorder, losses = asyncio.get_running_loop(), self._recorder, self._recorder.losses
        began, cpu_s = loop.time(), session.watchdog.measure().cpu_s
        self._denials.take()
        self._untold.clear()
        recorder.begin(execution, emit)
        await session.files.refresh()
        try:
            content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False,
                       **self._code_gate.at_run_time}  # fmt: skip
            reply, shown = recorder.gate.execute_reply(await self._ask("execute", {"content": content}, timeout), code)
            recorder.stream("", "stdout", shown)  # (of a pager: help, source)
            execution.execution_count = reply["execution_count"]
            if reply["status"] == "error":
                trace = "\n".join(reply.get("traceback") or ())
                execution.error = ExecutionError(str(reply.get("ename")), str(reply.get("evalue")), trace)
                execution.exit_code = exit_code(execution.error)
            else:
                execution.logs.stderr += recorder.tracebacks
        except SandboxError as caught:
            error = caught
            failed(execution, error)
        finally:
            usage = session.watchdog.measure()
            execution.duration_s = loop.time() - began
            execution.cpu_time_s = max(0.0, usage.cpu_s - cpu_s)
            execution.peak_memory_bytes = max(session.watchdog.peak, session.watchdog.memory, usage.memory)
            execution.denials = self._denials.take()
            execution.state = recorder.state if recorder.losses != losses else "kept"
            told = (execution.error.name, execution.error.value) if execution.error is not None else None
            said, files = await end_cell(session, self._plans, execution.denials, told)
            execution.files_kept = files.kept
            if said:
                recorder.stream("", "stderr", said)
            recorder.end()
            self._note(code, execution, error)

    async def _fetch(self, execution: Execution, names: Sequence[str], timeout: float | None) -> None:
        """The value of the last expression, if it is a table or an array, and what ``returns`` asks for."""
        for result in execution.results:
            if result.is_main_result and (result.html or (result.text or "")[:1].isalnum()):
                fields = {"result": execution.execution_count, "most": _DATA_BYTES}
                result.data = await self._get(fields, timeout)
        for name in names:
            try:
                execution.returned[name] = await self._get({"name": name}, timeout)
            except (FrameRefused, KeyError, CellError) as error:
                execution.dropped[name] = str(error.args[0])
