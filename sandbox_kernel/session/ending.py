"""What is done and said when a cell has ended: its files, and what the sandbox refused to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..plan.model import Plan
from ..report import aside_text, files_text
from .denial_text import PlanFacts, explanation
from .denials import Denial
from .held import Report
from .session import Session


async def end_cell(
    session: Session, plans: Sequence[Plan], denials: Sequence[Denial], error: tuple[str, str] | None, *,
    kept_told: bool = True,
) -> tuple[str, Report]:
    """Keep the files of the cell that just ended.

    Args:
        session: in which it ran.
        plans: those of which the zygote took one.
        denials: system calls that were refused to it.
        error: name and value of the error that ended it.
        kept_told: say which files were kept. They lie where the cell has put them: only a person who does not know the
            sandbox needs it, not a document that is made again.

    Returns:
        What there is to say, in lines, and what became of its files.
    """
    files = session.files
    try:
        report = await files.errands.run(files.collect) if files.changed else Report()
    except Exception as fault:  # ours; the cell must not wait for ever
        report = Report(inside=[("files of this cell", f"a fault of the sandbox: {type(fault).__name__}")])
    news, how = files.news(report)
    stays, left = "none", ""
    if files.aside is not None:
        files.set_aside(asyncio.get_running_loop())
        again, unseen, lost = files.aside.news() if kept_told else ([], [], {})
        left = aside_text(again, unseen, lost)
        if not lost or any(path not in lost for path, _ in news.inside):
            stays = files.aside.mode
    if not report.kept and not report.inside and not left and not denials and error is None:
        return "", report  # as of most cells
    facts = PlanFacts.in_force(plans, session.supervisor.level, session.supervisor.details)
    told = files_text(news.kept if kept_told else (), news.inside, how=how, stays=stays) + left
    return told + explanation(denials, error, facts), report
