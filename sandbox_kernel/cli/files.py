"""`sandbox-kernel files`: see and take out what cells made in their private layer."""

from __future__ import annotations

import argparse
import contextlib
import glob
import os
import queue
import socket
import sys
import time
from typing import Any

from ..report import held_text
from .stop import Stop

DESCRIPTION = """\
Lists the files that the cells of a running kernel have made in the notebook's folder, where the policy says
files.workspace = "overlay": which of them were kept next to the notebook, and why others were not. With --keep it
keeps one, whatever its kind; over a file that no sandbox made only with --replace. No cell can do that: the kernel's
connection file is needed. With --aside it does the same with what earlier kernels have left, and needs no kernel.
"""

EXAMPLES = """\
examples:
  sandbox-kernel files                         of the kernel that was started last and still runs
  sandbox-kernel files 3f2a --keep model.py    of the kernel whose id begins so; keep one file
  sandbox-kernel files --keep data.csv --replace   what cells made of it takes the place of the one on the disk
  sandbox-kernel files --aside                 what earlier kernels over notebooks in this folder have left
  sandbox-kernel files --aside ~/course --keep model.pkl
  sandbox-kernel files --aside --forget        remove it, so that the next kernel begins without
"""

_ENDED = "What kernels that have ended left is told by `sandbox-kernel files --aside`, in the notebook's folder."
ANSWER_S = 60.0  # copying a gigabyte included


def add_command(commands: Any) -> None:
    """Add the command to argparse's collection of subparsers."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "files", help="see and take out the files that cells made", description=DESCRIPTION, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("kernel", metavar="KERNEL", nargs="?", default="", help="the beginning of a kernel's id (its "
                        "connection file is kernel-ID.json), or the path of a connection file; default: the kernel "
                        "that was started last and still runs")  # fmt: skip
    parser.add_argument("--keep", metavar="NAME", action="append", default=[], help="keep this file next to the "
                        "notebook; can be given several times")  # fmt: skip
    parser.add_argument("--replace", action="store_true", help="with --keep: also over a file that is there and that "
                        "no sandbox made")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="list the files, after --keep too")
    parser.add_argument("--aside", metavar="FOLDER", nargs="?", const=".", help="what kernels that have ended have "
                        "left of notebooks in this folder; default: the current one")  # fmt: skip
    parser.add_argument("--forget", action="store_true", help="with --aside: remove all of it, but for what belongs "
                        "to a kernel that runs")  # fmt: skip
    parser.set_defaults(command=run)


def run(args: argparse.Namespace) -> int:
    """Ask the kernel.

    Returns:
        0 when all that was asked for was kept, else 1.

    Raises:
        Stop: no such kernel, or no answer from it; options that do not go together.
    """
    if args.aside is not None:
        if args.kernel:
            raise Stop("--aside takes no kernel: it is about those that have ended")
        from .aside import aside

        return aside(args)
    if args.forget:
        raise Stop("--forget goes with --aside: of a kernel that runs nothing can be forgotten")
    answer = _ask(_connection_file(args.kernel), {"keep": args.keep, "replace": args.replace})
    if not answer["layered"]:
        raise Stop('this kernel has no private layer: files.workspace is not "overlay" in its policy')
    for name, why in answer["kept"].items():
        sys.stdout.write(f"{name!r}: {f'not kept, {why}' if why else 'kept'}\n")
    if args.list or not args.keep:
        rows = [(file["name"], file["size"], file["why"]) for file in answer["files"]]
        sys.stdout.write(held_text(rows, answer["more"]) or "Cells have made no files in the notebook's folder.\n")
    return int(any(answer["kept"].values()))


def _connection_file(kernel: str) -> str:
    """Path of a kernel's connection file.

    Raises:
        Stop: there is none, or more than one.
    """
    if os.path.isfile(kernel):
        return kernel
    from jupyter_core.paths import jupyter_runtime_dir  # slow to import, like all of Jupyter

    folder = jupyter_runtime_dir()
    found = glob.glob(os.path.join(glob.escape(folder), f"kernel-{glob.escape(kernel)}*.json"))
    if not found:
        raise Stop(f"there is no connection file kernel-{kernel}*.json in {folder}; `jupyter --runtime-dir` tells "
                   f"where Jupyter keeps them, and the path of one can be given. {_ENDED}")  # fmt: skip
    if kernel and len(found) > 1:
        raise Stop(f"{len(found)} kernels begin with {kernel!r}; write more of the id")
    return found[0] if len(found) == 1 else _latest(found)


def _latest(files: list[str]) -> str:
    """That of the kernel that was started last. Kernels that were killed leave their files behind.

    Raises:
        Stop: none of them answers.
    """
    for file in sorted(files, key=os.path.getmtime, reverse=True):
        with contextlib.suppress(Stop):
            _ask(file, {})
            return file
    raise Stop(f"no Sandboxed Python answers, of {len(files)} kernels with a connection file in "
               f"{os.path.dirname(files[0])}. {_ENDED}")  # fmt: skip


def _ask(file: str, wish: dict[str, Any]) -> dict[str, Any]:
    from jupyter_client.blocking.client import BlockingKernelClient

    client = BlockingKernelClient()
    try:
        client.load_connection_file(file)
    except (OSError, ValueError, KeyError) as error:
        raise Stop(f"{file} cannot be used: {error}") from error
    if not _listens(client.transport, client.ip, client.control_port):
        raise Stop(f"the kernel of {file} has ended")
    client.start_channels(shell=False, iopub=False, stdin=False, hb=False, control=True)
    try:
        message = client.session.msg("sandbox_files_request", wish)
        client.control_channel.send(message)
        client.control_channel.send(client.session.msg("kernel_info_request"))  # which every kernel answers
        deadline = time.monotonic() + (ANSWER_S if wish.get("keep") else ANSWER_S / 6)
        while (left := deadline - time.monotonic()) > 0:
            try:
                reply = client.get_control_msg(timeout=left)
            except queue.Empty:
                break
            if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                content: dict[str, Any] = reply["content"]
                return content
            if reply["content"].get("implementation") not in (None, "sandboxed-python"):
                raise Stop(f"the kernel of {file} is no Sandboxed Python")
        raise Stop(f"no answer from the kernel of {file}")
    finally:
        client.stop_channels()


def _listens(transport: str, ip: str, port: int) -> bool:
    """Whether anybody does at a kernel's address."""
    family, address = (socket.AF_INET6 if ":" in ip else socket.AF_INET, (ip, port))  # type: tuple[int, Any]
    if transport == "ipc":
        family, address = socket.AF_UNIX, f"{ip}-{port}"
    with socket.socket(family, socket.SOCK_STREAM) as end, contextlib.suppress(OSError):
        end.settimeout(ANSWER_S / 6)
        end.connect(address)
        return True
    return False
