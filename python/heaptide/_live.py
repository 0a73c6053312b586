"""The recording of this process, while it runs."""

import glob
import os

from . import _control
from ._command import HeaptideError


def recording() -> str:
    """Returns the path of the recording of this process."""
    path = os.environ.get("HEAPTIDE_OUTPUT")
    if path is None:
        raise HeaptideError("HEAPTIDE_OUTPUT is not set: this process does not know its recording")
    return os.path.relpath(path)


def profile() -> str:
    """Returns the path of this process's profile, after writing this thread's buffered counts."""
    _control.flush()
    pattern = os.path.join(glob.escape(recording()), "{}-*.profile".format(os.getpid()))
    files = sorted(glob.glob(pattern), key=os.path.getmtime)
    if not files:
        raise HeaptideError("{}: this process has no profile there".format(recording()))
    return files[-1]
