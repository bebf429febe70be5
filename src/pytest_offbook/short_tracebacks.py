"""Short tracebacks of failed runs: the lines of the test and of the agent's own code."""

from __future__ import annotations

from pathlib import Path
from sysconfig import get_path
from typing import TYPE_CHECKING

from offbook.surfaces import fixtures

if TYPE_CHECKING:
    from types import TracebackType

ERRORS_MODULE = "offbook.errors"
OFFBOOK_FOLDER = str(Path(fixtures.__file__).parents[1])
RUN_FILE = str(Path(OFFBOOK_FOLDER) / "runs" / "rehearsal.py")
# Frames of these folders are removed from the tracebacks of runs.
INTERNAL_FOLDERS = (
    OFFBOOK_FOLDER,
    *(get_path(name) for name in ("stdlib", "purelib", "platlib")),
    "<frozen",
)


def shorten_run_traceback(error: BaseException) -> None:
    """Remove the internal frames of an error that a run raised; leave all other errors."""
    if any(_file(frame) == RUN_FILE for frame in _frames(error)):
        hide_internal_frames(error)


def hide_internal_frames(error: BaseException) -> None:
    """Remove the frames of Offbook and of installed packages from an error of a run.

    What is left are the lines of the test, of the agent's own code, and the last one.
    """
    frames = _frames(error)
    files = [_file(frame) for frame in frames]
    own = type(error).__module__ == ERRORS_MODULE
    # An error that did not pass through a run is not ours to shorten.
    if own or any(file.startswith(OFFBOOK_FOLDER) for file in files):
        outside = zip(frames, files, strict=True)
        kept = [frame for frame, file in outside if not file.startswith(INTERNAL_FOLDERS)]
        # The last frame is the place where a library raised; one of Offbook itself says nothing.
        if frames[-1:] != kept[-1:] and not files[-1].startswith(OFFBOOK_FOLDER):
            kept.append(frames[-1])
        if kept:
            for frame, following in zip(kept, [*kept[1:], None], strict=True):
                frame.tb_next = following
            error.__traceback__ = kept[0]
    cause = error.__cause__ or error.__context__  # shown with it
    if own and type(cause).__module__ == ERRORS_MODULE:
        # The exit of a command is a consequence of the failure; its output is in the trace.
        error.__cause__ = None  # this hides the context, too
    elif cause is not None:
        hide_internal_frames(cause)


def _frames(error: BaseException) -> list[TracebackType]:
    frames: list[TracebackType] = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    return frames


def _file(frame: TracebackType) -> str:
    return frame.tb_frame.f_code.co_filename
