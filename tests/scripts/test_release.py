"""`./dev release` refuses what must not be released. The whole command runs for each tag."""

import json
import runpy
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RELEASE: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "release.py"))
PAGE: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "package_page.py"))
CheckFailed, NoData = RELEASE["CheckFailed"], RELEASE["NoData"]
REPOSITORY = "https://code.example/o/offbook"

CHANGELOGS = {
    "no section": ("## [Unreleased]\n- a\n", "no section"),
    "an entry above": (
        "## [Unreleased]\n- a\n\n## [1.0.0] - 2026-01-31\n- b\n",
        "entries above the section of 1.0.0: 1",
    ),
    "no date": ("## [1.0.0]\n- a\n", "no date"),
    "no entry": ("## [1.0.0] - 2026-01-31\n\n## [0.9.0] - 2026-01-01\n- a\n", "is empty"),
    "a longer version": ("## [1.0.01] - 2026-01-31\n- a\n", "no section"),
}


@pytest.mark.parametrize("name", CHANGELOGS)
def test_a_changelog_is_refused_that_has(name: str):
    text, message = CHANGELOGS[name]
    with pytest.raises(CheckFailed, match=message):
        RELEASE["check_changelog"](text, "1.0.0")


def test_a_changelog_with_a_date_and_entries_is_accepted():
    text = "## [Unreleased]\n\n## [1.0.0] - 2026-01-31\n### New\n- a\n- b\n"
    assert RELEASE["check_changelog"](text, "1.0.0") == "1.0.0 - 2026-01-31, 2 entries"


def test_the_version_is_stated_once_in_two_places():
    assert RELEASE["check_version"](ROOT)


def test_two_versions_are_refused(tmp_path: Path):
    (tmp_path / "src/offbook").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.0.1"\n')
    (tmp_path / "src/offbook/version.py").write_text('VERSION = "1.0.0"\n')
    with pytest.raises(CheckFailed, match=r"pyproject.toml has 1\.0\.1"):
        RELEASE["check_version"](tmp_path)


BUILDS: dict[str, tuple[list[dict[str, str]], str]] = {
    "another digest": ([{"a.whl": "1"}, {"a.whl": "2"}], "build 2 differs .* a.whl"),
    "a missing file": ([{"a.whl": "1", "a.tar.gz": "1"}, {"a.whl": "1"}], "a.tar.gz"),
    "no file": ([{}, {}], "nothing was built"),
    "no build": ([], "nothing was built"),
}


@pytest.mark.parametrize("name", BUILDS)
def test_builds_are_refused_with(name: str):
    builds, message = BUILDS[name]
    with pytest.raises(CheckFailed, match=message):
        RELEASE["compare_builds"](builds)


AUDITS: dict[str, tuple[list[dict[str, Any]], Any]] = {
    "a vulnerability": ([{"name": "a", "vulns": [{"id": "X"}]}], CheckFailed),
    "an unknown package": (
        [{"name": "a", "vulns": []}, {"name": "b", "skip_reason": "not found"}],
        NoData,
    ),
    "no package": ([], NoData),
}


@pytest.mark.parametrize("name", AUDITS)
def test_an_audit_does_not_pass_with(name: str):
    packages, error = AUDITS[name]
    with pytest.raises(error):
        RELEASE["judge_audit"](json.dumps({"dependencies": packages}), "")


def test_an_audit_without_a_report_is_no_data():
    with pytest.raises(NoData, match="no index"):
        RELEASE["judge_audit"]("", "no index\n")


def write_wheel(folder: Path, page: str, urls: str = "") -> Path:
    wheel = folder / "offbook-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("offbook-1.0.0.dist-info/METADATA", f"Name: offbook\n{urls}\n{page}")
    return wheel


def test_a_relative_link_on_the_page_of_the_index_is_refused(tmp_path: Path):
    with pytest.raises(CheckFailed, match=r"docs/ci\.md"):
        RELEASE["check_page"](write_wheel(tmp_path, "see [CI](docs/ci.md)"))


def test_a_package_without_urls_is_no_data(tmp_path: Path):
    with pytest.raises(NoData, match="OFFBOOK_REPOSITORY"):
        RELEASE["check_page"](write_wheel(tmp_path, "words"))


@pytest.mark.parametrize("repository", ["", REPOSITORY])
def test_the_readme_has_no_relative_link_on_an_index(repository: str, tmp_path: Path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    page = PAGE["page_for_index"](readme, repository, "1.0.0")
    urls = f"Project-URL: Source, {REPOSITORY}\n"
    assert RELEASE["check_page"](write_wheel(tmp_path, page, urls)).startswith("1 project URLs")
    image = f"]({REPOSITORY}/raw/v1.0.0/docs/images/demo.svg)"
    assert (image in page) is bool(repository)


def test_the_page_of_the_index_has_the_first_test():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    agent, test = RELEASE["first_test"](PAGE["page_for_index"](readme, "", "1.0.0"))
    assert "class Shop" in agent
    assert "from shop import Shop" in test


def test_a_link_in_a_code_block_stays():
    text = "```md\n[a](b.md)\n```\n[a](b.md)\n"
    assert PAGE["page_for_index"](text, "", "1.0.0") == "```md\n[a](b.md)\n```\na\n"


def test_an_sbom_has_what_offbook_needs_and_nothing_else():
    def part(name: str) -> dict[str, str]:
        return {"bom-ref": name, "name": name}

    bill = {
        "components": [part("offbook"), part("click"), part("pytest")],
        "dependencies": [{"ref": "offbook", "dependsOn": ["click"]}, {"ref": "pytest"}],
    }
    kept = RELEASE["keep_needed"](bill)
    assert [each["name"] for each in kept["components"]] == ["offbook", "click"]
    assert [each["ref"] for each in kept["dependencies"]] == ["offbook"]


def test_an_sbom_without_offbook_is_refused():
    with pytest.raises(CheckFailed, match="does not name offbook"):
        RELEASE["keep_needed"]({"components": [], "dependencies": []})


# --- The commit


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a repository with one commit."""
    commands = [
        ["init", "-q"],
        ["config", "user.name", "n"],
        ["config", "user.email", "n@example.org"],
        ["config", "commit.gpgsign", "false"],
        ["add", "-Af"],
        ["commit", "-qm", "one", "--allow-empty"],
    ]
    (tmp_path / "a.py").touch()
    for command in commands:
        git(tmp_path, *command)
    return tmp_path


def git(checkout: Path, *args: str) -> str:
    return RELEASE["git"](checkout, *args)


def test_an_uncommitted_file_is_refused(checkout: Path):
    (checkout / "b.py").touch()
    with pytest.raises(CheckFailed, match=r"not committed: b\.py"):
        RELEASE["check_tracked_files"](checkout)


@pytest.mark.parametrize("name", ["run.log", "dist/a.txt", "x/a.pyc", "secret.txt"])
def test_a_tracked_file_that_a_run_left_is_refused(name: str, checkout: Path):
    (checkout / ".gitignore").write_text("secret.txt\n")
    (checkout / name).parent.mkdir(exist_ok=True)
    (checkout / name).touch()
    git(checkout, "add", "-Af")
    git(checkout, "commit", "-qm", "two")
    with pytest.raises(CheckFailed, match=name):
        RELEASE["check_tracked_files"](checkout)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_no_log_and_no_build_is_tracked_here():
    files = git(ROOT, "ls-files").splitlines()
    assert [name for name in files if RELEASE["LEFT_OVER"].search(name)] == []
    assert files


def test_a_tag_of_another_commit_is_refused(checkout: Path):
    git(checkout, "tag", "v1.0.0")
    assert RELEASE["check_tag"](checkout, "1.0.0") == "v1.0.0"
    git(checkout, "commit", "-qm", "two", "--allow-empty")
    with pytest.raises(CheckFailed, match="another commit"):
        RELEASE["check_tag"](checkout, "1.0.0")
    with pytest.raises(NoData, match=r"git tag -a v1\.0\.1"):
        RELEASE["check_tag"](checkout, "1.0.1")
