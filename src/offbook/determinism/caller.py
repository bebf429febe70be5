"""Who is to blame: the line of the user's own code that led to something."""

from __future__ import annotations

import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

HERE = str(Path(__file__).resolve().parents[1])


def call_site() -> str:
    """`file:line in function` of the innermost frame that is neither Python's nor a library's."""
    # the only way to see one's caller
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - there is no public way
    while frame is not None:
        code = frame.f_code
        if not _is_foreign(code.co_filename):
            return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return ""


@cache
def _is_foreign(file: str) -> bool:
    return file.startswith(("<", *_foreign_folders()))


@cache
def _foreign_folders() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = {Path(sysconfig.get_paths()[name]) for name in names}
    return (HERE, *{str(shown) for path in paths for shown in (path, path.resolve())})
