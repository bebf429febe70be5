"""The certificates of the hosts that a script answers, and how clients come to trust them.

The authority exists in this process. A run has a folder with its certificate, which is deleted with
the run: `trust_variables` are the variables by which the clients of a command find it.
"""

from __future__ import annotations

import os
import shlex
import signal
import ssl
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

BUNDLE, JAVA_STORE, WGET_SETTINGS = "bundle.pem", "java.p12", "wgetrc"
# OpenSSL (and Go and Ruby), requests, curl, AWS, Deno, gRPC, Node, LWP of Perl, httplib2
BUNDLE_VARIABLES = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "DENO_CERT"),
    *("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "NODE_EXTRA_CA_CERTS", "PERL_LWP_SSL_CA_FILE"),
    "HTTPLIB2_CA_CERTS",
)
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Authority:
    """Signs the certificates of the hosts that a script answers."""

    def __init__(self, trustme: Any) -> None:
        self._authority = trustme.CA(organization_name="Offbook", organization_unit_name="tests")
        self.pem: bytes = self._authority.cert_pem.bytes()
        self._contexts: dict[str, ssl.SSLContext] = {}

    def context(self, host: str) -> ssl.SSLContext:
        """Return the TLS settings of a server with the name of this host."""
        context = self._contexts.get(host)
        if context is None:
            context = self._contexts[host] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._authority.issue_cert(host).configure_cert(context)
            context.set_alpn_protocols(["http/1.1"])
        return context

    @cached_property
    def java_store(self) -> bytes:
        """The authority in the format of Java's key stores."""
        from cryptography.hazmat.primitives.serialization import (
            BestAvailableEncryption,
            pkcs12,
        )
        from cryptography.x509 import load_pem_x509_certificate

        certificate = pkcs12.PKCS12Certificate(load_pem_x509_certificate(self.pem), b"offbook")
        return pkcs12.serialize_java_truststore([certificate], BestAvailableEncryption(b"offbook"))


@cache
def find_authority() -> Authority | None:
    """Return the authority of this process, if `offbook[proxy]` is installed."""
    # An exception of a signal handler in its import makes the native part of it panic.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        import trustme
    except ImportError:
        return None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return Authority(trustme)


def write_certificates(authority: Authority, folder: Path, environment: Mapping[str, str]) -> None:
    """Write our authority, and those that the process trusts otherwise."""
    system = environment.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
    bundle = folder / BUNDLE
    bundle.write_bytes(authority.pem + _read(system or ""))
    (folder / JAVA_STORE).write_bytes(authority.java_store)
    # PHP and wget read no variable for it, but the place of their settings.
    settings = f'curl.cainfo = "{bundle}"\nopenssl.cafile = "{bundle}"\n'
    (folder / "offbook.ini").write_text(settings, encoding="utf-8")
    own = environment.get("WGETRC") or Path(environment.get("HOME", "")) / ".wgetrc"
    (folder / WGET_SETTINGS).write_bytes(_read(own) + f"\nca_certificate = {bundle}\n".encode())


def trust_variables(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which clients trust the certificates of a folder."""
    return {
        **dict.fromkeys(BUNDLE_VARIABLES, str(folder / BUNDLE)),
        "SSL_CERT_DIR": str(folder),
        "WGETRC": str(folder / WGET_SETTINGS),
        # An empty entry is the folder that PHP was built with.
        "PHP_INI_SCAN_DIR": f"{environment.get('PHP_INI_SCAN_DIR', '')}{os.pathsep}{folder}",
    }


def java_options(folder: Path) -> list[str]:
    """Return the options by which Java trusts the certificates of a folder."""
    return [
        f"-Djavax.net.ssl.trustStore={shlex.quote(str(folder / JAVA_STORE))}",
        "-Djavax.net.ssl.trustStorePassword=offbook",
    ]


def _read(path: str | Path) -> bytes:
    with suppress(OSError):
        return Path(path).read_bytes()
    return b""
