"""Settings that all tests share."""

from __future__ import annotations

import os
import tempfile

# Before anything imports Jupyter: the history, profiles and settings of whoever runs the tests must neither
# change their outcome nor be changed by them. What the environment has installed stays visible.
_private = tempfile.TemporaryDirectory(prefix="sandbox-kernel-tests-")
for _name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
    os.environ[_name] = os.path.join(_private.name, _name.lower())
    os.mkdir(os.environ[_name], 0o700)
for _name in ("JUPYTER_PATH", "SANDBOX_KERNEL_POLICY", "PYTHONSTARTUP", "MPLBACKEND"):
    os.environ.pop(_name, None)
