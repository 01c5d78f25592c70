"""A server that has this kernel and no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

from sandbox_kernel.kernelspecs import SandboxedKernels

OURS = ["/env/bin/python", "-P", "-m", "sandbox_kernel", "-f", "{connection_file}"]
OTHERS = {
    "python3": ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
    "bash": ["bash", "{connection_file}"],
    "looks-alike": ["python", "-c", "-m sandbox_kernel", "{connection_file}"],
    "close": ["python", "-m", "sandbox_kernel_not", "-m", "sandbox_kernel"],
    "ends": ["python", "-m"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, argv in {"sandboxed-python": OURS, "course": OURS, **OTHERS}.items():
        (tmp_path / name).mkdir()
        spec = {"argv": argv, "display_name": name, "language": "python"}
        (tmp_path / name / "kernel.json").write_text(json.dumps(spec))
    return tmp_path


def test_only_ours_are_listed_and_started(folder: Path) -> None:
    manager = SandboxedKernels(kernel_dirs=[str(folder)])
    assert set(manager.find_kernel_specs()) == set(manager.get_all_specs()) == {"sandboxed-python", "course"}
    assert manager.get_kernel_spec("course").argv == OURS
    for name in (*OTHERS, "nothing", "../course", ""):
        with pytest.raises(NoSuchKernel):
            manager.get_kernel_spec(name)


def test_jupyter_s_own_list_stops_nobody(folder: Path) -> None:
    manager = KernelSpecManager(
        kernel_dirs=[str(folder)], allowed_kernelspecs={"sandboxed-python"}, ensure_native_kernel=False
    )
    assert set(manager.find_kernel_specs()) == {"sandboxed-python"}
    assert manager.get_kernel_spec("bash").argv == OTHERS["bash"]


def test_folders_of_users_are_not_looked_at(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    own = folder.parent / "own"
    (own / "share" / "jupyter").mkdir(parents=True)
    folder.rename(own / "share" / "jupyter" / "kernels")
    monkeypatch.setenv("JUPYTER_PATH", str(own / "share" / "jupyter"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(own / "share" / "jupyter"))
    assert "course" in KernelSpecManager().find_kernel_specs()
    assert "course" not in SandboxedKernels().find_kernel_specs()
