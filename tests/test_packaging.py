"""What is shipped, and which part may know which."""

from __future__ import annotations

import ast
import json
import struct
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import sandbox_kernel

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "sandbox_kernel"
MODULES = sorted(PACKAGE.rglob("*.py"))

# part -> parts of the package that it may import. A part is a top-level module or folder, "" the package
# itself; a single module of a part may have a line of its own.
ARROWS = {
    "": {"policy", "api"},  # only when a name is asked for
    "__main__": {"errors", "policy", "report", "kernel", "deferred"},
    "deferred": set(),
    "errors": set(),
    "frozen": set(),
    "arguments": {"errors"},
    "quantities": set(),
    "launcher": {"errors"},
    "telemetry": set(),
    "policy_values": {"errors", "frozen", "launcher", "quantities"},
    "policy_layers": {"errors", "launcher", "policy_values"},
    "policy_tables": {"policy_values", "quantities"},
    "policy": {"errors", "frozen", "launcher", "policy_values", "policy_layers", "policy_tables"},
    "report": {"errors", "policy"},
    # The wall, as a chain: each knows what stands before it.
    "linux": set(),
    "seccomp": {"errors", "frozen", "linux"},
    "plan": {"errors", "frozen", "policy", "linux", "seccomp"},
    "confine": {"frozen", "linux", "seccomp", "plan"},
    "proof": {"frozen", "linux", "plan"},  # (not `confine`: what it did is tried, not asked)
    "launch": {"errors", "linux", "seccomp", "plan", "confine", "proof"},
    "launch.cgroup": {"errors", "policy"},
    "channel": {"errors", "frozen"},
    "frames": {"errors"},
    "code_rules": {"errors", "policy"},  # (the policy for its type alone: workers import the rules)
    "verify": {"errors", "arguments"},
    "outputs": {"errors", "frozen"},
    "worker": {"errors", "channel", "frames", "code_rules"},
    "session": {"errors", "launcher", "policy", "report", "linux", "seccomp", "plan", "proof", "launch", "channel",
                "frames", "frozen"},
    # What a freshly started interpreter runs: it confines itself, and forks the worker's code.
    "fresh": {"linux", "plan", "launch", "worker", "deferred"},
    "api": {"errors", "arguments", "auditing", "policy", "report", "session", "outputs", "channel", "frames",
            "code_rules", "telemetry"},
    "grading": {"errors", "arguments", "api", "code_rules", "session"},
    "jobs": set(),  # (the work is named by whoever wants it done)
    "client": {"errors", "arguments", "frames"},
    # Leaves: only its command knows the first, and only a user's program the others.
    "mcp": {"", "errors", "quantities", "api"},
    "kernel": {"errors", "auditing", "launcher", "policy", "quantities", "report", "session", "outputs", "channel",
               "frames", "code_rules", "telemetry"},
    "adapters": {"errors", "api"},
    "kernelspecs": set(),
    # The one place where both sides meet: it forks the worker's code into the sandbox.
    "kernel.launch": {"errors", "policy", "linux", "plan", "launch", "worker", "session"},
    "audit": {"errors"},
    "auditing": {"errors", "audit"},
    "bench": {"api"},  # (it starts kernels as programs)
    "cli": {"errors", "launcher", "policy", "policy_layers", "report"},
    "cli.check": {"errors", "policy", "policy_layers", "code_rules", "verify"},
    "cli.audit": {"audit"},
    "cli.grade": {"", "errors", "policy", "policy_layers", "grading", "jobs"},
    "cli.mcp": {"launcher", "quantities", "api", "mcp"},
    "cli.run": {"errors", "launcher", "policy_layers"},
    "cli.batch": {"", "jobs"},
    "cli.packages": {"jobs"},
    "cli.bench": {"bench"},
    "cli.host": {"linux", "confine", "launch"},
    "cli.trials": {"errors", "plan", "proof", "launch", "session"},
    "cli.aside": {"plan", "policy_values", "report", "session"},
    "cli.doctor": {"errors", "launcher", "policy", "report", "plan"},
}  # fmt: skip

# Packages besides the standard library that a part may import. Parts that are not named here are free.
FOREIGN = {
    "errors": set(),
    "arguments": set(),
    "quantities": set(),
    "launcher": set(),
    "telemetry": set(),
    "deferred": set(),
    "policy_values": {"msgspec"},
    "policy_layers": set(),
    "policy": {"msgspec"},
    "code_rules": set(),
    "code_rules.cells": {"IPython"},
    "verify": {"z3"},
    "linux": set(),
    "seccomp": set(),
    "seccomp.program": {"pyseccomp"},
    "plan": set(),
    "confine": set(),
    "proof": set(),
    "launch": set(),
    "channel": set(),
    "channel.schema": {"msgspec"},
    "worker": {"IPython", "comm", "ipykernel", "jupyter_client", "traitlets", "tornado", "zmq"},
    # What comes with ipykernel, and is loaded when somebody debugs.
    "worker.debuggee": {"ipykernel", "debugpy", "pydevd", "pydevd_tracing", "_pydevd_bundle"},
    "fresh": set(),
    "session": {"msgspec", "psutil"},
    "grading": set(),
    "grading.table": {"rich"},
    "grading.results": {"rich"},  # (for its types, and when a table is asked for)
    "jobs": set(),
    "jobs.cluster": {"distributed"},
    "mcp": {"msgspec"},
    "mcp.server": {"mcp", "mcp_types", "starlette", "uvicorn"},
    "kernelspecs": {"jupyter_client", "jupyter_core"},
    "adapters.smolagents": {"smolagents"},
    "adapters.langchain": {"langchain_core", "pydantic"},
}

SPEC_FILES = {"kernel.json", "logo-32x32.png", "logo-64x64.png", "logo-svg.svg"}


def part_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    if relative.parts[0] == "__init__.py":
        return ""
    return relative.parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file imports, by absolute name, wherever in the file."""
    package = ("sandbox_kernel", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, node.module or "")).rstrip(".")
            yield node.lineno, module
            if module == "sandbox_kernel":  # "from .. import errors" names a part; "__version__" names none
                for alias in node.names:
                    if (PACKAGE / alias.name).exists() or (PACKAGE / f"{alias.name}.py").exists():
                        yield node.lineno, f"{module}.{alias.name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_along_the_arrows(path: Path) -> None:
    part = part_of(path)
    assert part in ARROWS, f"{part} is a new part: say in ARROWS what it may import"
    allowed = ARROWS.get(f"{part}.{path.stem}", ARROWS[part])
    for line, module in imports(path):
        top, _, rest = module.partition(".")
        if top != "sandbox_kernel" or not rest:
            continue
        target = rest.partition(".")[0]
        assert target == part or target in allowed, f"{path.name}:{line}: {part} must not import {target}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_few_other_packages(path: Path) -> None:
    part = part_of(path)
    allowed = FOREIGN.get(f"{part}.{path.stem}", FOREIGN.get(part))
    if allowed is None:
        return
    for line, module in imports(path):
        top = module.partition(".")[0]
        known = top in sys.stdlib_module_names or top == "sandbox_kernel" or top in allowed
        assert known, f"{path.name}:{line}: {part} must not import {top}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_is_short_enough_to_be_read(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= 400, f"{path.name} has {lines} lines"


def test_the_wall_can_be_read_in_an_hour() -> None:
    """SECURITY.md leads a stranger through it."""
    modules = [path for path in MODULES if part_of(path) == "confine"]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in modules) < 900
    told = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert [path.name for path in modules if path.stem != "__init__" and f"`{path.name}`" not in told] == []


def test_the_import_reader_sees_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "sandbox_kernel"
    (package / "worker").mkdir(parents=True)
    (package / "policy.py").touch()
    path = package / "worker" / "shell.py"
    path.write_text(
        "import sandbox_kernel.confine.plan\nfrom ..session import link\nfrom .. import policy, __version__\n"
        "from . import magics\ndef late():\n    from sandbox_kernel.kernel.app import main\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", package)
    assert {name for _, name in imports(path)} == {
        "sandbox_kernel.confine.plan", "sandbox_kernel.session", "sandbox_kernel", "sandbox_kernel.policy",
        "sandbox_kernel.worker", "sandbox_kernel.kernel.app",
    }  # fmt: skip


def test_kernelspec() -> None:
    spec = json.loads((ROOT / "kernelspec" / "kernel.json").read_text(encoding="utf-8"))
    assert spec["argv"] == ["python", "-P", "-m", "sandbox_kernel", "-f", "{connection_file}"]
    assert spec["display_name"] == "Sandboxed Python"
    assert spec["language"] == "python"
    assert spec["metadata"] == {"debugger": True, "supported_encryption": ["curve"]}
    assert spec.get("interrupt_mode", "signal") == "signal"
    assert {path.name for path in (ROOT / "kernelspec").iterdir()} == SPEC_FILES


@pytest.mark.parametrize("size", [32, 64])
def test_logo_has_the_size_that_jupyter_expects(size: int) -> None:
    data = (ROOT / "kernelspec" / f"logo-{size}x{size}.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", data[16:24]) == (size, size)


def test_wheel_holds_the_kernelspec_the_presets_and_the_licence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    version = sandbox_kernel.__version__
    assert wheel.name == f"sandbox_kernel-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"sandbox_kernel-{version}.dist-info/METADATA").decode()
    for name in SPEC_FILES:
        assert f"sandbox_kernel-{version}.data/data/share/jupyter/kernels/sandboxed-python/{name}" in names
        assert f"sandbox_kernel/kernelspec/{name}" in names
    shipped = {str(path.relative_to(ROOT)) for path in MODULES}
    shipped |= {str(path.relative_to(ROOT)) for path in (PACKAGE / "presets").glob("*.toml")}
    assert shipped | {"sandbox_kernel/py.typed"} <= names
    assert f"sandbox_kernel-{version}.dist-info/licenses/LICENSE" in names
    assert "Requires-Dist: landlock==1.0.0.dev5" in metadata
    assert not [name for name in names if name.startswith(("tests/", "notebooks/")) or "__pycache__" in name]


def test_every_base_dependency_has_a_lower_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert all(">=" in line or "==" in line for line in project["dependencies"])
    extras = {"data", "lab", "verify", "mcp", "smolagents", "langchain", "dask", "docs", "test"}
    assert set(project["optional-dependencies"]) == extras


def test_makefile_declares_every_command_as_phony() -> None:
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line[:1].isalpha() and ":" in line and "=" not in line]
    targets = {line.partition(":")[0] for line in rules}
    phony = {line.removeprefix(".PHONY: ") for line in lines if line.startswith(".PHONY: ")}
    assert targets == phony >= {"demo", "lab", "test", "check", "install"}


def test_readme_starts_with_the_three_commands() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    commands = [line.split("#")[0].strip() for line in lines if line.startswith("make ")]
    assert lines.index("```sh") == 2
    assert commands == ["make demo", "make lab", "make test"]
