"""The options that several commands have, alike in all of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from offbook.runs.goldens.project import Project

FILE = click.Path(path_type=Path)
PORT = click.IntRange(0, 65_535)


def _find_project(_: click.Context, __: click.Parameter, root: Path | None) -> Project:
    from offbook.runs.goldens.project import Project, find_root

    return Project((root or find_root(Path.cwd())).resolve())


deadline = click.option(
    "--deadline",
    default=600.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds that the command may take.",
)
env = click.option(
    "--env", multiple=True, metavar="NAME[=VALUE]", help="For the agent; repeatable."
)
json = click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
preset = click.option(
    "--preset", multiple=True, metavar="CLIENT", help="What is known of a client."
)
project = click.option(
    "--root",
    "project",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    callback=_find_project,
    help="The folder of the project; the one around here by default.",
)
trace = click.option("--trace", type=FILE, help="Write what happened to this file.")
upstream = click.option("--upstream", metavar="URL", help="The base URL of the real model.")
