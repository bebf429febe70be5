"""A search makes equal TLS contexts once."""

from __future__ import annotations

import ssl

from offbook.explore import share_ssl_contexts


def test_equal_calls_share_a_context_until_the_search_ends():
    stop = share_ssl_contexts()
    try:
        shared = ssl.create_default_context()
        assert ssl.create_default_context() is shared
    finally:
        stop()
    assert ssl.create_default_context() is not shared


def test_another_purpose_has_another_context():
    stop = share_ssl_contexts()
    try:
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        assert ssl.create_default_context() is not server
    finally:
        stop()
