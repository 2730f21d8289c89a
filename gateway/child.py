"""What every child process does first: it asks to die with its parent, then becomes the module it was named.

`python -m gateway.child PARENT LOG_LEVEL MODULE ARGUMENT...`. A pipe's end would go unread while a model
runs; the
kernel's signal does not.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from typing import Final

from gateway import logs

PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Become the module, unless the parent is gone already."""
    parent, level, module, *arguments = sys.argv[1:]
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        sys.exit(1)  # it died before the kernel was asked
    logs.configure(level)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
