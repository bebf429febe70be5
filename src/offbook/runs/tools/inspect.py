"""`inspect`: look into the session of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec

from offbook.errors import UsageError, nearest
from offbook.files import convert
from offbook.runs.workspace import Workspaces
from offbook.trace.inspect import Filter, list_records, summarize, tell_timeline
from offbook.trace.reader import Trace

Format = Literal["json", "summary", "timeline"]
FORMATS = ("json", "summary", "timeline")


def inspect(
    workspace_id: str,
    *,
    filter: Mapping[str, Any] | None = None,  # noqa: A002 - the word of the tool
    limit: int = 100,
    format: Format = "json",  # noqa: A002 - as above
) -> dict[str, Any]:
    """Events, a summary, or a timeline of a workspace's run."""
    wanted = convert(filter or {}, Filter, path="filter")
    if not isinstance(cast("Any", limit), int) or limit < 1:
        raise UsageError(f"limit is {limit!r}", hint="ask for at least one record")
    session = Workspaces().find(workspace_id).recorded
    trace = Trace(session, count=format == "summary")
    if format == "json":
        told: dict[str, Any] = msgspec.to_builtins(list_records(trace, wanted, limit))
    elif format == "summary":
        chosen = trace if wanted == Filter() else wanted.select(trace)
        told = msgspec.to_builtins(summarize(chosen))
    elif format == "timeline":
        moments = tell_timeline(trace, wanted)
        told = {"timeline": msgspec.to_builtins(moments)}
        if not moments:
            told["message"] = "no iteration records"
    else:
        raise UsageError(f"there is no format {format!r}", hint=nearest(str(format), FORMATS))
    faults = [{"line": fault.line, "why": fault.why, "text": fault.text} for fault in trace.faults]
    if faults:
        told["faults"] = faults
        told["truncated_tail"] = trace.faults[-1].torn
    return told
