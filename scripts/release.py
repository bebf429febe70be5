"""Build the wheel and the sdist, and check what a user of them would get: ./dev release.

Each check prints one line. A check that had nothing to look at is "no data": with --dry-run it is
listed, otherwise it fails the release. The files are built from the commit, never from the folder,
and are left in dist/ only if no check failed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TOOLS = Path(sys.executable).parent  # this script runs in the environment of the release tools
VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
LEFT_OVER = re.compile(r"\.(log|tmp|pyc|whl|orig|rej|swp)$|\.tar\.gz$|(^|/)(dist|build|\.venv)/")
RULE = 'if params["id"] not in self.found:'  # of the agent in the README


class CheckFailed(Exception):
    """A check found something that must not be released."""


class NoData(Exception):
    """A check had nothing to look at, here."""


# --- Facts of the commit


def check_version(root: Path) -> str:
    """Return the version, which pyproject.toml and version.py must agree on."""
    declared = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    module = (root / "src/offbook/version.py").read_text()
    if f'VERSION = "{declared}"' not in module:
        raise CheckFailed(f"pyproject.toml has {declared}, src/offbook/version.py has not")
    if not VERSION.fullmatch(declared):
        raise CheckFailed(f"{declared} is not MAJOR.MINOR.PATCH, with a1, b1 or rc1 at most")
    return declared


def check_changelog(text: str, version: str) -> str:
    """Return the heading of the version, which must have a date and at least one entry."""
    section = re.search(
        rf"^## \[{re.escape(version)}\](?P<date>.*)\n(?P<body>(?:(?!## ).*\n?)*)",
        text,
        flags=re.MULTILINE,
    )
    if section is None:
        raise CheckFailed(f"no section ## [{version}] - YYYY-MM-DD in CHANGELOG.md")
    if not re.fullmatch(r" - \d{4}-\d\d-\d\d", section["date"]):
        raise CheckFailed(f"the section of {version} in CHANGELOG.md has no date: - YYYY-MM-DD")
    if before := len(re.findall(r"^- ", text[: section.start()], flags=re.MULTILINE)):
        raise CheckFailed(f"CHANGELOG.md has entries above the section of {version}: {before}")
    entries = len(re.findall(r"^- ", section["body"], flags=re.MULTILINE))
    if not entries:
        raise CheckFailed(f"the section of {version} in CHANGELOG.md is empty")
    return f"{version}{section['date']}, {entries} entries"


def check_tracked_files(root: Path) -> str:
    """Refuse uncommitted changes, and logs and builds among the tracked files."""
    if changed := git(root, "status", "--porcelain").splitlines():
        raise CheckFailed(f"not committed: {', '.join(line[3:] for line in changed[:5])}")
    files = git(root, "ls-files").splitlines()
    ignored = git(root, "ls-files", "-ci", "--exclude-standard").splitlines()
    if wrong := sorted({*ignored, *filter(LEFT_OVER.search, files)}):
        raise CheckFailed(f"tracked, but made by a run or a build: {', '.join(wrong[:5])}")
    return f"{len(files)} files, nothing uncommitted"


def check_tag(root: Path, version: str) -> str:
    """Return the tag of this commit. A tag of the version on another commit is refused."""
    tag = f"v{version}"
    if tag in git(root, "tag", "--points-at", "HEAD").split():
        return tag
    if git(root, "tag", "--list", tag).strip():
        raise CheckFailed(f"{tag} is the tag of another commit: raise the version")
    raise NoData(f"{tag} is not set: git tag -a {tag} -m 'Offbook {version}'")


def git(root: Path, *args: str) -> str:
    """Return the output of a git command in a checkout."""
    return run(["git", "-C", str(root), *args])


# --- Builds


def build(source: Path, output: Path, epoch: str, *, umask: int, zone: str) -> dict[str, str]:
    """Build both files from a folder, and return their digests by name."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": epoch, "TZ": zone}
    run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(output)],
        cwd=source,
        env=environment,
        umask=umask,
    )
    return {file.name: sha256(file) for file in sorted(output.iterdir())}


def sha256(file: Path) -> str:
    """Return the digest of a file, as an index lists it."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def check_builds(root: Path, folder: Path) -> str:
    """Build the commit in two folders, with other umasks and zones, and the sdist: same bytes."""
    epoch = git(root, "log", "-1", "--format=%ct").strip()
    archive = folder / "commit.tar"
    run(["git", "-C", str(root), "archive", "-o", str(archive), "HEAD"])
    builds: list[dict[str, str]] = []
    for name, umask, zone in (("one", 0o022, "UTC"), ("other/place", 0o077, "Asia/Tokyo")):
        source = folder / name
        source.mkdir(parents=True)
        shutil.unpack_archive(archive, source, filter="data")
        builds.append(build(source, folder / f"dist-{umask:o}", epoch, umask=umask, zone=zone))
    shutil.move(folder / f"dist-{0o022:o}", folder / "dist")
    shutil.unpack_archive(find_one(folder / "dist", "*.tar.gz"), folder / "sdist", filter="data")
    [unpacked] = (folder / "sdist").iterdir()
    builds.append(build(unpacked, folder / "dist-sdist", epoch, umask=0o022, zone="UTC"))
    compare_builds(builds)
    return ", ".join(f"{name} {digest[:12]}" for name, digest in builds[0].items())


def compare_builds(builds: list[dict[str, str]]) -> None:
    """Refuse builds that differ in the name or the digest of a file."""
    if not builds or not all(builds):
        raise CheckFailed("nothing was built")
    for number, other in enumerate(builds[1:], 2):
        if other != builds[0]:
            names = sorted(n for n in {*other, *builds[0]} if other.get(n) != builds[0].get(n))
            raise CheckFailed(f"build {number} differs from build 1: {', '.join(names)}")


def find_one(folder: Path, pattern: str) -> Path:
    """Return the only file of a folder that matches."""
    [file] = folder.glob(pattern)
    return file


# --- The built files


def read_metadata(wheel: Path) -> tuple[list[str], str]:
    """Return the project URLs and the page for the index."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        message = HeaderParser().parsestr(archive.read(name).decode())
    return message.get_all("Project-URL") or [], str(message.get_payload())


def check_page(wheel: Path) -> str:
    """Refuse a page with a relative link. Without a repository, an image cannot be shown."""
    urls, page = read_metadata(wheel)
    without_code = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)\s]+)\)", without_code)
    if relative := [t for t in targets if not re.match(r"https?://|#|mailto:", t)]:
        raise CheckFailed(f"relative links on the page of the index: {', '.join(relative[:5])}")
    if not urls:
        raise NoData("no project URLs and no image: set OFFBOOK_REPOSITORY=https://…")
    return f"{len(urls)} project URLs, {len(targets)} links"


def check_twine(dist: Path) -> str:
    """Hold the metadata to the rules of the index."""
    run([tool("twine"), "check", "--strict", *map(str, sorted(dist.iterdir()))])
    return "metadata is valid, and the page renders"


def check_wheel_contents(wheel: Path, root: Path) -> str:
    """Look for tests, caches and empty folders in the wheel."""
    run([tool("check-wheel-contents"), "--config", str(root / "pyproject.toml"), str(wheel)])
    with zipfile.ZipFile(wheel) as archive:
        return f"{len(archive.namelist())} files"


def check_pyroma(sdist: Path, *, has_urls: bool) -> str:
    """Look for metadata that a package should have."""
    # The project has no mail address. Its URLs are those of the repository that releases it.
    skipped = ["AuthorEmail", *([] if has_urls else ["Url"])]
    run([tool("pyroma"), "--min", "10", "--skip-tests", ",".join(skipped), str(sdist)])
    return f"10 of 10, without {' and '.join(skipped)}"


def check_audit(lock: Path) -> str:
    """Look for known vulnerabilities. Packages that no index knows are not audited."""
    answer = subprocess.run(  # noqa: S603 - our own tools
        [tool("pip-audit"), "-r", str(lock), "--require-hashes", "--disable-pip", "-f", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    return judge_audit(answer.stdout, answer.stderr)


def judge_audit(report: str, error: str) -> str:
    """Return the number of audited packages of a report of pip-audit."""
    try:
        packages = json.loads(report)["dependencies"]
    except ValueError:
        raise NoData(f"pip-audit: {error.strip().splitlines()[-1:] or 'no report'}") from None
    if found := [p["name"] for p in packages if p.get("vulns")]:
        raise CheckFailed(f"known vulnerabilities in {', '.join(found)}")
    audited = [p for p in packages if "skip_reason" not in p]
    if len(audited) < len(packages) or not audited:
        raise NoData(f"{len(audited)} of {len(packages)} packages are known to the index")
    return f"{len(audited)} packages without a known vulnerability"


# --- The wheel in an environment of a user


def check_install(wheel: Path, python: str, folder: Path) -> str:
    """Install the wheel as a user does, and run the first test of the page of the index."""
    run([python, "-m", "venv", str(folder)])
    programs = folder / "bin"
    pip = [str(programs / "python"), "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "install", "--quiet", str(wheel), "pytest"])
    run([*pip, "check"])
    environment = {"PATH": f"{programs}{os.pathsep}{os.defpath}", "HOME": str(folder)}
    printed = run([str(programs / "offbook"), "--version"], env=environment)
    version = wheel.name.split("-")[1]
    if printed.split() != ["offbook", version]:
        raise CheckFailed(f"offbook --version prints {printed.strip()!r}, not offbook {version}")
    run([str(programs / "offbook"), "demo"], env=environment)
    project = folder / "project"
    project.mkdir()
    agent, test = first_test(read_metadata(wheel)[1])
    (project / "test_shop.py").write_text(test)
    for source, code in ((agent, 0), (agent.replace(RULE, "if False:"), 1)):
        (project / "shop.py").write_text(source)
        ended = subprocess.run(  # noqa: S603 - the environment that was just made
            [str(programs / "python"), "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode != code:
            state = "fails" if code == 0 else "passes for a broken agent"
            raise CheckFailed(f"the first test of the README {state}:\n{ended.stdout[-2000:]}")
    release = run([python, "-c", "import platform; print(platform.python_version())"]).strip()
    return f"Python {release}: installed, demo, first test passes and fails as it should"


def first_test(page: str) -> tuple[str, str]:
    """Return the agent and the test of the page."""
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    if len(blocks) < 2 or RULE not in blocks[0] or "def test_" not in blocks[1]:  # noqa: PLR2004 - agent and test
        raise CheckFailed("the page has no agent and test: see ## A first test of README.md")
    return blocks[0], blocks[1]


def write_bill(environment: Path, output: Path) -> str:
    """Write the packages that a user installs as a CycloneDX file: the SBOM."""
    python = str(environment / "bin" / "python")
    bill = json.loads(
        run([tool("cyclonedx-py"), "environment", "--output-reproducible", "-o", "-", python])
    )
    bill = keep_needed(bill)
    output.write_text(json.dumps(bill, indent=2) + "\n")
    return f"{len(bill['components'])} packages"


def keep_needed(bill: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a CycloneDX file that offbook needs: not pip, and not pytest."""
    needs = {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}
    open_refs = [part["bom-ref"] for part in bill["components"] if part["name"] == "offbook"]
    if not open_refs:
        raise CheckFailed("the SBOM does not name offbook")
    needed: set[str] = set()
    while open_refs:
        needed.add(ref := open_refs.pop())
        open_refs += [other for other in needs.get(ref, []) if other not in needed]
    return bill | {
        "components": [part for part in bill["components"] if part["bom-ref"] in needed],
        "dependencies": [each for each in bill["dependencies"] if each["ref"] in needed],
    }


def tool(name: str) -> str:
    """Return the path of a program of the release tools."""
    return str(TOOLS / name)


def run(
    command: list[str],
    *,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    umask: int = -1,
) -> str:
    """Run a command and return its output; a failure is a failed check with its last lines."""
    ended = subprocess.run(  # noqa: S603 - our own tools
        command, cwd=cwd, env=env, umask=umask, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        lines = (ended.stdout + ended.stderr).strip().splitlines()
        raise CheckFailed("\n".join([f"{' '.join(command[:4])} …", *lines[-15:]]))
    return ended.stdout


# --- All checks


Check = tuple[str, Callable[[], str]]


def all_checks(root: Path, folder: Path, pythons: Iterable[str]) -> Iterator[Check]:
    """The checks in order. Later ones read what earlier ones have built."""
    version = check_version(root)
    dist = folder / "dist"
    yield "version", lambda: version
    yield "changelog", lambda: check_changelog((root / "CHANGELOG.md").read_text(), version)
    yield "tracked files", lambda: check_tracked_files(root)
    yield "tag", lambda: check_tag(root, version)
    yield "reproducible builds", lambda: check_builds(root, folder)
    wheel, sdist = find_one(dist, "*.whl"), find_one(dist, "*.tar.gz")
    yield "twine check", lambda: check_twine(dist)
    yield "check-wheel-contents", lambda: check_wheel_contents(wheel, root)
    yield "page of the index", lambda: check_page(wheel)
    yield "pyroma", lambda: check_pyroma(sdist, has_urls=bool(read_metadata(wheel)[0]))
    yield "pip-audit", lambda: check_audit(root / "requirements-runtime.lock")
    for number, python in enumerate(pythons):
        place = folder / f"environment-{number}"
        yield "wheel", lambda python=python, place=place: check_install(wheel, python, place)
    bill = dist / f"offbook-{version}.cdx.json"
    yield "SBOM", lambda: write_bill(folder / "environment-0", bill)


def main() -> int:
    """Run all checks, print a line for each, and leave the files in dist/."""
    parser = argparse.ArgumentParser(prog="./dev release", description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="accept a check without data")
    parser.add_argument("--python", action="append", help="an interpreter to install the wheel in")
    options = parser.parse_args()
    os.environ.pop("PYTHONPATH", None)
    without_data: list[str] = []
    with tempfile.TemporaryDirectory(prefix="offbook-release-") as name:
        folder = Path(name)
        try:
            for title, check in all_checks(ROOT, folder, options.python or [sys.executable]):
                try:
                    print(f"{title:22} {check()}", flush=True)
                except NoData as error:
                    without_data.append(title)
                    print(f"{title:22} no data: {error}", flush=True)
                except CheckFailed as error:
                    raise CheckFailed(f"{title}: {error}") from None
        except CheckFailed as error:
            print(f"release: failed: {error}", file=sys.stderr)
            return 1
        if without_data and not options.dry_run:
            print(f"release: failed: no data: {', '.join(without_data)}", file=sys.stderr)
            return 1
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        shutil.copytree(folder / "dist", ROOT / "dist")
    for file in sorted((ROOT / "dist").iterdir()):
        print(f"{sha256(file)}  dist/{file.name}")
    missing = f"; no data: {', '.join(without_data)}" if without_data else ""
    print(f"release: every check with data passed{missing}" if missing else "release: all passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
