"""An npm package with a pi manifest: pack it, install it in an empty project, load it in pi."""

from __future__ import annotations

import os
import re
import shutil
import tarfile
from io import BytesIO
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from offbook.errors import FormatError, UsageError, did_you_mean
from offbook.files import read_text
from offbook.sandbox.js_imports import find_undeclared
from offbook.sandbox.sandbox_folder import Loaded
from offbook.subjects.clis.pi import Pi
from offbook.subjects.clis.pi.pi_process import check_version, quiet_options
from offbook.subjects.session.tools import compile_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.sandbox.sandbox_folder import SandboxFolder
    from offbook.subjects.process import ProcessResult

SCOPES = ("@earendil-works/", "@mariozechner/")
BUILD_TOOLS = "*node-gyp*|*node-pre-gyp*|*prebuild*|*cmake-js*"
PROXY_VARIABLES = "http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY"
RESOURCES = ("extensions", "skills", "prompts", "themes")
# pi provides these to its extensions; a user does not install them with a package.
PROVIDED = ("@earendil-works/pi-", "@mariozechner/pi-", "@sinclair/typebox", "typebox")
INSTALL = ("--foreground-scripts", "--no-audit", "--no-fund", "--no-progress")
UNRESOLVED = {
    "E404",
    "ETARGET",
    "ENOVERSIONS",
    "ERESOLVE",
    "EINVALIDTAGNAME",
    "EUNSUPPORTEDPROTOCOL",
}
UNREACHABLE = {"ENOTFOUND", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "EAI_AGAIN"}
NPM_CODE = re.compile(r"^npm (?:error|ERR!) code (\S+)", re.MULTILINE)
NPM_SCRIPT = re.compile(r"^npm (?:error|ERR!) command (?!failed)(.+)", re.MULTILINE)
NPM_PEER = re.compile(r"Could not resolve dependency:\s+npm (?:error|ERR!) (peer\w* .+)")
NPM_FOUND = re.compile(r"^npm (?:error|ERR!) Found: (.+)", re.MULTILINE)
NPM_NEEDED = re.compile(
    r"404 +(?:The requested resource +)?'([^']+)'|No matching version found for (\S+)\.$",
    re.MULTILINE,
)
LOAD_ERROR = re.compile(r'Failed to load extension "([^"]+)": (?:Failed to load extension: )?')
NO_MODULE = re.compile(r"Cannot find (?:module|package) '([^']+)'")
IMPORT_ERRORS = (
    "ERR_MODULE_NOT_FOUND",
    "ERR_PACKAGE_PATH_NOT_EXPORTED",
    "ERR_UNSUPPORTED_DIR_IMPORT",
    "does not provide an export named",
    'is not defined by "exports"',
    "is not exported",
)


class Installation(NamedTuple):
    """A package that was installed, as far as that went: its folder is None if it failed."""

    package: str
    version: str
    host: str
    loaded: Loaded
    folder: Path | None = None


async def install_npm_package(
    sandbox: SandboxFolder,
    source: Path,
    program: str | None,
    archive: Path | None = None,
    *,
    library: bool = False,
) -> Installation:
    """Pack, install and load a package; what is wrong with it is in the faults of the sandbox."""
    manifest = _read_manifest(source)
    declares = manifest.get("pi") or any((source / name).is_dir() for name in RESOURCES)
    library = library and not manifest.get("pi")
    pi = "" if library else _find_pi(program)
    npm = shutil.which("npm")
    if npm is None:
        raise UsageError("npm is not installed", hint="install Node.js, which has it")
    pi_version = "" if library else await check_version(pi, os.environ)
    host = "Node" if library else f"pi {pi_version}"
    installation = Installation(
        str(manifest.get("name", "")), str(manifest.get("version", "")), host, Loaded()
    )
    if not declares and not library:
        sandbox.fail(
            "no_manifest",
            'package.json has no "pi", and there is no folder extensions or skills',
            f'add to package.json: "pi": {{"extensions": ["./index.ts"]}}\nin {source}\n'
            "for a package without extensions: --expect-extensions 0",
        )
        return installation
    if archive is None:
        with sandbox.step("pack"):
            command = [npm, "pack", "--pack-destination", sandbox.temp, "--loglevel=error"]
            result = await sandbox.run(command, cwd=source, installs=True)
            archive = next(sandbox.temp.glob("*.tgz"), None)
        if sandbox.failed(result, "npm pack", "pack"):
            return installation
        if archive is None:
            sandbox.fail("pack", "npm pack wrote no archive", result.stdout + result.stderr)
            return installation
    name = installation.package
    with sandbox.step("install"):
        provided = _provide(sandbox, manifest, pi)
        dependencies = {name: f"file:{archive}", **{n: f"file:{p}" for n, p in provided.items()}}
        project = {"name": "sandbox", "private": True, "dependencies": dependencies}
        (sandbox.project / "package.json").write_bytes(msgspec.json.encode(project))
        logs = {"npm_config_logs_dir": str(sandbox.temp / "logs")}
        shell = _write_shell(sandbox, name)
        command = [npm, "install", *INSTALL, f"--script-shell={shell}"]
        result = await sandbox.run(command, env=logs, installs=True)
    sandbox.check_writes("while it was installed")
    if result.timed_out or result.code:
        _explain_install(sandbox, result)
        return installation
    folder = sandbox.project / "node_modules" / name
    _check_manifest(sandbox, _read_manifest(folder), folder, source)
    _link_provided(sandbox, provided, pi)
    with sandbox.step("load"):
        if library:
            loaded = await _load_library(sandbox, folder, source, name)
        else:
            loaded = await _load(sandbox, folder, source, pi, pi_version)
    sandbox.check_writes("while it was loaded")
    return installation._replace(loaded=loaded, folder=folder)


# --- the package


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / "package.json"
    try:
        return msgspec.json.decode(read_text(path), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise FormatError(f"invalid JSON: {error}", path=path) from error


def _provide(sandbox: SandboxFolder, manifest: dict[str, Any], pi: str) -> dict[str, Path]:
    """Return an archive for each peer that pi provides: its name, and its version in this pi.

    npm resolves the ranges of peers against them, and installs the other peers.
    """
    metas = cast("dict[str, dict[str, Any]]", manifest.get("peerDependenciesMeta") or {})
    peers = cast("dict[str, str]", manifest.get("peerDependencies") or {})
    provided: dict[str, Path] = {}
    for name in peers:
        if metas.get(name, {}).get("optional"):  # npm installs none, and pi provides it anyway
            continue
        found = _find_in_pi(name, pi) if name.startswith(PROVIDED) else None
        if found is not None:
            package = {"name": name, "version": _read_manifest(found).get("version")}
            content = msgspec.json.encode(package)
            info = tarfile.TarInfo("package/package.json")
            info.size = len(content)
            provided[name] = sandbox.root / f"provided-{len(provided)}.tgz"
            with tarfile.open(provided[name], "w:gz") as archive:
                archive.addfile(info, BytesIO(content))
    return provided


def _find_in_pi(name: str, pi: str) -> Path | None:
    """Return the folder of a package that pi provides, by its old name or by its new one."""
    names = {name, *(name.replace(old, new) for old in SCOPES for new in SCOPES)}
    for folder in Path(pi).resolve().parents:
        for candidate in sorted(names, key=lambda other: other != name):
            found = folder / "node_modules" / candidate
            if (found / "package.json").is_file():
                return found
    return None


def _link_provided(sandbox: SandboxFolder, provided: Iterable[str], pi: str) -> None:
    """Put the packages of pi in place of the archives that npm has installed."""
    for name in provided:
        link, found = sandbox.project / "node_modules" / name, _find_in_pi(name, pi)
        if found is not None:
            shutil.rmtree(link)
            link.symlink_to(found)


def _write_shell(sandbox: SandboxFolder, name: str) -> Path:
    """Write the shell of install scripts: those of the package itself are watched.

    Tools that build machine code fetch headers or a binary: they may connect.
    """
    shell = sandbox.root / "script-shell"
    watcher = {
        network: " ".join(map(quote, sandbox.watcher(network)))
        for network in ("open", sandbox.network)
    }
    shell.write_text(
        f"""#!/bin/sh
[ "$npm_package_name" = {quote(name)} ] || exec sh "$@"
case "$2" in {BUILD_TOOLS})
    export npm_config_devdir={quote(str(sandbox.root / "state" / "node-gyp"))}
    exec {watcher["open"]} sh "$@" ;;
esac
unset {PROXY_VARIABLES}
exec {watcher[sandbox.network]} sh "$@"
"""
    )
    shell.chmod(0o755)
    return shell


def _check_manifest(
    sandbox: SandboxFolder, manifest: dict[str, Any], folder: Path, source: Path
) -> None:
    """Add a fault for each path of the manifest that is not in the package; pi ignores them."""
    section: dict[str, Any] = manifest.get("pi") or {}
    shown = msgspec.json.format(msgspec.json.encode({"pi": section}), indent=2).decode()
    for resource in RESOURCES:
        for entry in cast("list[object]", section.get(resource) or []):
            if not isinstance(entry, str) or entry[:1] in {"!", "+", "-"}:
                continue
            pattern = entry.removeprefix("./").rstrip("/") or "."
            if _exists(folder, pattern):
                continue
            where = f"pi.{resource} names {entry!r}"
            if _exists(source, pattern):
                files = msgspec.json.encode(manifest.get("files", "not set")).decode()
                sandbox.fail(
                    "missing_file",
                    f'{where}, which is not packed: add it to "files" in package.json',
                    f'"files": {files}\n{_list_files(folder)}',
                )
            else:
                names = [str(p.relative_to(folder)) for p in _files(folder)]
                hint = did_you_mean(pattern, names)
                sandbox.fail("entry_point", f"{where}, which does not exist: {hint}", shown)


def _exists(folder: Path, pattern: str) -> bool:
    if any(sign in pattern for sign in "*?["):
        return any(folder.glob(pattern))
    return (folder / pattern).exists()


def _files(folder: Path) -> Iterable[Path]:
    return (
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "node_modules" not in path.relative_to(folder).parts
    )


def _list_files(folder: Path) -> str:
    names = [f"  {path.relative_to(folder)}" for path in _files(folder)]
    return "\n".join(["packed files:", *names[:20]])


# --- npm


def _explain_install(sandbox: SandboxFolder, result: ProcessResult) -> None:
    """Add the fault of an `npm install` that failed."""
    shell = str(sandbox.root / "script-shell")
    output = (result.stdout + result.stderr).replace(shell, "sh")
    found = NPM_CODE.search(output)
    code = found[1] if found else ""
    if result.timed_out:
        scripts = [line[2:] for line in output.splitlines() if line.startswith("> ")]
        during = f" ({scripts[-1]})" if scripts else ""
        message = f"npm install was still running after {sandbox.deadline:g} s{during}"
        sandbox.fail("deadline", message, output)
    elif code in UNREACHABLE:
        sandbox.fail("network", f"the npm registry cannot be reached: {code}", output)
    elif code == "ERESOLVE" and (peer := NPM_PEER.search(output)):
        other = NPM_FOUND.search(output)
        got = f", found {other[1]}" if other else ""
        sandbox.fail("dependency", f"a peer range does not fit: {peer[1]}{got}", output)
    elif code in UNRESOLVED:
        needed = NPM_NEEDED.search(output)
        named = f": {needed[1] or needed[2]}" if needed else ""
        sandbox.fail("dependency", f"a dependency does not resolve{named} ({code})", output)
    elif script_found := NPM_SCRIPT.search(output):
        sandbox.fail("install_script", f"an install script failed: {script_found[1]}", output)
    else:
        sandbox.failed(result, "npm install", "install")


# --- pi


def _find_pi(program: str | None) -> str:
    client = Pi.client
    found = program or (client.find() if client is not None else None)
    if found is None:
        fix = "" if client is None else f"fix: {client.install_command}"
        raise UsageError("pi is not installed: no 'pi' on the PATH", hint=fix)
    return found


async def _load(
    sandbox: SandboxFolder, folder: Path, source: Path, pi: str, version: str = ""
) -> Loaded:
    """Start pi with the package, between two extensions that report what it loads."""
    report = sandbox.root / "report.json"
    agent = sandbox.root / "agent"
    agent.mkdir()
    ours: list[str] = []
    for name in ("pi_watch.ts", "pi_report.ts"):
        copy = sandbox.root / name
        shutil.copyfile(Path(__file__).with_name(name), copy)
        ours.append(str(copy))
    env = {
        "PI_CODING_AGENT_DIR": str(agent),
        "PI_OFFLINE": "1",
        "PI_TELEMETRY": "0",
        "OFFBOOK_PACKAGE": str(folder),
        "OFFBOOK_REPORT": str(report),
    }
    extensions = ["-e", ours[0], "-e", str(folder), "-e", ours[1]]
    # Its standard input is closed, so it exits when the session has started.
    words = [pi, "--mode", "rpc", "--no-session", *quiet_options(version)]
    result = await sandbox.run([*words, *extensions], env=env, watched=True)
    output = result.stdout + result.stderr
    errors = _parse_load_errors(result.stderr)
    for path, message in errors:
        _explain_load(sandbox, folder, source, path, message)
    if not errors:
        sandbox.failed(result, "pi", "load")
    for line in result.stdout.splitlines():
        if '"extension_error"' in line:
            event = msgspec.json.decode(line, type=dict[str, Any])
            message = f"a hook failed: {event.get('event')}: {event.get('error')}"
            sandbox.fail("load", message, line)
    data: dict[str, Any] = msgspec.json.decode(report.read_bytes()) if report.exists() else {}
    for name in data.get("duplicates", []):
        sandbox.fail("tool", f"the tool {name!r} is registered twice", f"registerTool: {name}")
    for message in data.get("invalid", []):
        sandbox.fail("tool", message, output or f"registerTool: {message}")
    for name, schema in cast("dict[str, Any]", data.get("schemas") or {}).items():
        try:
            compile_schema(schema, name)
        except UsageError as error:
            shown = msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()
            sandbox.fail("tool", f"the tool {name!r} has an {error.what}", shown)
    resolved = cast("dict[str, list[str]]", data.get("resolved") or {})
    if not errors:
        _check_imports(sandbox, folder, source, resolved.get("extensions", []))
    return _read_report(data, folder, errors)


async def _load_library(sandbox: SandboxFolder, folder: Path, source: Path, name: str) -> Loaded:
    """Import a package that has no extensions, in Node."""
    report, script = sandbox.root / "report.json", Path(__file__).with_name("load_library.mjs")
    command = ["node", script, sandbox.project, name, report]
    result = await sandbox.run(command, watched=True)
    if sandbox.failed(result, f"the import of {name}", "load"):
        return Loaded()
    data = msgspec.json.decode(report.read_bytes(), type=dict[str, Any])
    for error in data["errors"]:
        missing = NO_MODULE.search(error["message"])
        where = str(folder / error["path"])
        if missing and not missing[1].startswith((".", "/")):
            _explain_load(sandbox, folder, source, where, error["message"])
        elif missing or error["code"] in {"ENOENT", "ERR_MODULE_NOT_FOUND"}:
            text = error["message"].splitlines()[0].replace(str(folder), ".")
            sandbox.fail("import", f"{name}: {text}", error["stack"])
        else:
            text = error["message"].splitlines()[0]
            sandbox.fail("load", f"{name} failed to load: {text}", error["stack"])
    return Loaded(modules=tuple(data["modules"]))


def _check_imports(
    sandbox: SandboxFolder, folder: Path, source: Path, extensions: Iterable[str]
) -> None:
    """Add a fault for each package that is imported, also late, and neither declared nor found."""
    manifest = _read_manifest(folder)
    declared = {
        name
        for field in ("dependencies", "peerDependencies", "optionalDependencies")
        for name in cast("dict[str, str]", manifest.get(field) or {})
    }
    allowed = {*declared, str(manifest.get("name"))}
    entries = [Path(path) for path in extensions]
    for name, place in find_undeclared(folder, entries, allowed).items():
        if not name.startswith(PROVIDED):
            note = _why_missing(name, source)
            file = place.rpartition(":")[0]
            sandbox.fail("dependency", f"{file} imports {name!r}: {note}", f"{place}: {name}")


def _why_missing(name: str, source: Path) -> str:
    development = cast("dict[str, str]", _read_manifest(source).get("devDependencies") or {})
    return "it is in devDependencies only" if name in development else "it is not in dependencies"


def _read_report(data: dict[str, Any], folder: Path, errors: list[tuple[str, str]]) -> Loaded:
    """Return the parts of the report that are about the package."""
    resolved = cast("dict[str, list[str]]", data.get("resolved") or {})
    failed = {path for path, _ in errors}
    commands = cast("list[dict[str, str]]", data.get("commands") or [])
    tools = cast("list[dict[str, str]]", data.get("tools") or [])
    own = [command for command in commands if Path(command["path"]).is_relative_to(folder)]
    return Loaded(
        extensions=len([path for path in resolved.get("extensions", []) if path not in failed]),
        extension_errors=tuple(f"{Path(path).name}: {message}" for path, message in errors),
        tools=tuple(tool["name"] for tool in tools if Path(tool["path"]).is_relative_to(folder)),
        skills=tuple(c["name"].removeprefix("skill:") for c in own if c["kind"] == "skill"),
        commands=tuple(c["name"] for c in own if c["kind"] != "skill"),
        themes=tuple(Path(path).stem for path in resolved.get("themes", [])),
    )


def _parse_load_errors(stderr: str) -> list[tuple[str, str]]:
    """Return the path and the message of each extension that pi did not load."""
    parts = LOAD_ERROR.split(stderr)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return [(path, text.removesuffix("Error: ").strip()) for path, text in pairs]


def _explain_load(
    sandbox: SandboxFolder, folder: Path, source: Path, path: str, message: str
) -> None:
    """Add the fault of an extension that pi did not load, by the reason that pi gives."""
    extension = Path(path)
    name = extension.relative_to(folder) if extension.is_relative_to(folder) else extension.name
    first = message.splitlines()[0] if message else "no message"
    output = f"{name}: {message}"
    missing = NO_MODULE.search(message)
    if "conflicts with" in message:
        sandbox.fail("tool", f"{first.replace(str(folder), '.')}", output)
    elif "does not export a valid factory" in message:
        sandbox.fail("entry_point", f"{name} has no function as its default export", output)
    elif missing and missing[1].startswith((".", "/")):
        module = missing[1]
        target = Path(module) if module.startswith("/") else (extension.parent / module)
        in_source = (
            source / target.resolve().relative_to(folder)
            if target.resolve().is_relative_to(folder)
            else target
        )
        packed = [in_source, *(in_source.with_suffix(s) for s in (".ts", ".js", ".mjs", ".json"))]
        if any(candidate.is_file() for candidate in packed):
            sandbox.fail(
                "missing_file",
                f'{name} imports {module!r}, which is not packed: add it to "files"',
                output,
            )
        else:
            sandbox.fail("import", f"{name} imports {module!r}, which does not exist", output)
    elif missing:
        note = _why_missing(missing[1], source)
        sandbox.fail("dependency", f"{name} imports {missing[1]!r}: {note}", output)
    elif any(text in message for text in IMPORT_ERRORS):
        sandbox.fail("import", f"{name}: {first}", output)
    else:
        sandbox.fail("load", f"{name} failed to load: {first}", output)
