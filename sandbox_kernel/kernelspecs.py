"""For servers whose users are to have this kernel and no other.

Jupyter's own allow-list hides kernels from the list, and starts each that is asked for by name.
"""

from __future__ import annotations

import os
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from jupyter_core.paths import ENV_JUPYTER_PATH, SYSTEM_JUPYTER_PATH


class SandboxedKernels(KernelSpecManager):
    """Knows the kernelspecs of this package only, whatever their names, and none out of a user's own folders.

    ``--ServerApp.kernel_spec_manager_class=sandbox_kernel.kernelspecs.SandboxedKernels``

    Looked at are ``share/jupyter/kernels`` of the server's environment and of the system, not the user's own nor
    ``JUPYTER_PATH``: there a user, or a cell that can write to the home folder, could put one of any kind.
    """

    def _kernel_dirs_default(self) -> list[str]:
        return [os.path.join(folder, "kernels") for folder in (*ENV_JUPYTER_PATH, *SYSTEM_JUPYTER_PATH)]

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """The kernelspec of this name.

        Raises:
            NoSuchKernel: there is none, or it is another kernel's.
        """
        spec = super().get_kernel_spec(kernel_name)
        if not _is_ours(spec):
            raise NoSuchKernel(kernel_name)
        return spec

    def find_kernel_specs(self) -> dict[str, str]:
        """The folders of all of them, by name."""
        found: dict[str, str] = super().find_kernel_specs()
        return {name: folder for name, folder in found.items() if self._known(name)}

    def _known(self, name: str) -> bool:
        try:
            self.get_kernel_spec(name)
        except NoSuchKernel:
            return False
        return True


def _is_ours(spec: Any) -> bool:
    argv = list(spec.argv)
    return "-m" in argv and argv[argv.index("-m") + 1 :][:1] == ["sandbox_kernel"]
