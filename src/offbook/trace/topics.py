"""Topics of the event bus, and the patterns that match them.

A topic has segments between dots. In a pattern, `*` alone matches every topic; otherwise both have
the same number of segments, and `*` stands for any one of them: `build.*` matches `build.done` and
not `build.task.abandoned`.
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def matches(pattern: str, topic: str) -> bool:
    """Whether a pattern matches a topic."""
    if pattern in {"*", topic}:
        return True
    wanted = pattern.split(".")
    given = topic.split(".")
    return len(wanted) == len(given) and all(
        part in {"*", found} for part, found in zip(wanted, given, strict=True)
    )
