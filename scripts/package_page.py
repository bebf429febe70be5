"""The page of the package on an index: the README with links that work there, and the URLs.

Hatchling calls this when it builds. An index shows the README without the repository around it, so
its relative links are made absolute. The address of the repository is in OFFBOOK_REPOSITORY, which
the release workflow sets. Without an address, links become plain text and images are left out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
ABSOLUTE = re.compile(r"https?://|mailto:|#")


def page_for_index(readme: str, repository: str, version: str) -> str:
    """Return the README with absolute links to the files of a version."""

    def rewrite(link: re.Match[str]) -> str:
        image, text, target = link["image"], link["text"], link["target"]
        if ABSOLUTE.match(target):
            return link[0]
        if repository:
            kind = "raw" if image else "blob"
            return f"{image}[{text}]({repository}/{kind}/v{version}/{target})"
        return "" if image else text

    # A link inside of a code block is an example, not a link.
    parts = re.split(r"(^```.*?^```)", readme, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else LINK.sub(rewrite, part) for part in parts)


def project_urls(repository: str, version: str) -> dict[str, str]:
    """Return the URLs that an index lists beside the page."""
    if not repository:
        return {}
    return {
        "Source": repository,
        "Documentation": f"{repository}/blob/v{version}/docs/README.md",
        "Changelog": f"{repository}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


class PackagePage(MetadataHookInterface):
    """Sets `readme` and `urls`, which pyproject.toml declares as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository = os.environ.get("OFFBOOK_REPOSITORY", "").rstrip("/")
        version = metadata["version"]
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = page_for_index(readme, repository, version)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = project_urls(repository, version)
