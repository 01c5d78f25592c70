"""`sandbox-kernel files`: see and take out what cells made in their private layer."""

from __future__ import annotations

import argparse
import glob
import os
import queue
import sys
import time
from typing import Any

from ..report import held_text
from .stop import Stop

DESCRIPTION = """\
Lists the files that the cells of a running kernel have made in the notebook's folder, where the policy says
files.workspace = "overlay": which of them were kept next to the notebook, and why others were not. With --keep it
keeps one, whatever its kind, but never over a file that the sandbox did not make. No cell can do that: the kernel's
connection file is needed.
"""

EXAMPLES = """\
examples:
  sandbox-kernel files                         of the kernel that was started last
  sandbox-kernel files 3f2a --keep model.py    of the kernel whose id begins so; keep one file
"""

ANSWER_S = 60.0  # copying a gigabyte included


def add_command(commands: Any) -> None:
    """Add the command to argparse's collection of subparsers."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "files", help="see and take out the files that cells made", description=DESCRIPTION, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("kernel", metavar="KERNEL", nargs="?", default="", help="the beginning of a kernel's id (its "
                        "connection file is kernel-ID.json), or the path of a connection file; default: the kernel "
                        "that was started last")  # fmt: skip
    parser.add_argument("--keep", metavar="NAME", action="append", default=[], help="keep this file next to the "
                        "notebook; can be given several times")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="list the files, after --keep too")
    parser.set_defaults(command=run)


def run(args: argparse.Namespace) -> int:
    """Ask the kernel.

    Returns:
        0 when all that was asked for was kept, else 1.

    Raises:
        Stop: no such kernel, or no answer from it.
    """
    answer = _ask(_connection_file(args.kernel), args.keep)
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
                   "where Jupyter keeps them, and the path of one can be given")  # fmt: skip
    if kernel and len(found) > 1:
        raise Stop(f"{len(found)} kernels begin with {kernel!r}; write more of the id")
    return max(found, key=os.path.getmtime)


def _ask(file: str, keep: list[str]) -> dict[str, Any]:
    from jupyter_client.blocking.client import BlockingKernelClient

    client = BlockingKernelClient()
    try:
        client.load_connection_file(file)
    except (OSError, ValueError, KeyError) as error:
        raise Stop(f"{file} cannot be used: {error}") from error
    client.start_channels(shell=False, iopub=False, stdin=False, hb=False, control=True)
    try:
        message = client.session.msg("sandbox_files_request", {"keep": keep})
        client.control_channel.send(message)
        deadline = time.monotonic() + (ANSWER_S if keep else ANSWER_S / 6)
        while (left := deadline - time.monotonic()) > 0:
            try:
                reply = client.get_control_msg(timeout=left)
            except queue.Empty:
                break
            if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                content: dict[str, Any] = reply["content"]
                return content
        raise Stop(f"no answer from the kernel of {file}: it has ended, or is no Sandboxed Python")
    finally:
        client.stop_channels()
