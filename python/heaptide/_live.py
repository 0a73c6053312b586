"""The recording of this process, while it runs."""

import glob
import os

from . import _control
from ._command import HeaptideError


def recording() -> str:
    """The recording that this process is in."""
    path = os.environ.get("HEAPTIDE_OUTPUT")
    if path is None:
        raise HeaptideError("HEAPTIDE_OUTPUT is not set: this process does not know its recording")
    return os.path.relpath(path)


def profile() -> str:
    """The profile of this process in it, with all that this thread has counted."""
    _control.flush()
    pattern = os.path.join(glob.escape(recording()), "{}-*.profile".format(os.getpid()))
    files = sorted(glob.glob(pattern), key=os.path.getmtime)
    if not files:
        raise HeaptideError("{}: this process has no profile there".format(recording()))
    return files[-1]
