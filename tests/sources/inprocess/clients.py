"""Every HTTP client that is intercepted, as a function from a URL to the chunks of the response."""

import asyncio
import http.client
import urllib.request
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import botocore.awsrequest  # pyright: ignore[reportMissingTypeStubs] - no type stubs exist
import botocore.httpsession  # pyright: ignore[reportMissingTypeStubs] - no type stubs exist
import httpx
import httpx2
import requests
import urllib3

BODY = b'{"hello": "model"}'

Client = Callable[[str], list[bytes]]


def by_httpx(url: str) -> list[bytes]:
    with httpx.Client() as client, client.stream("POST", url, content=BODY) as response:
        return list(response.iter_raw())


def by_httpx2(url: str) -> list[bytes]:
    with httpx2.Client() as client, client.stream("POST", url, content=BODY) as response:
        return list(response.iter_raw())


async def by_httpx_async(url: str) -> list[bytes]:
    async with httpx.AsyncClient() as client, client.stream("POST", url, content=BODY) as response:
        return [piece async for piece in response.aiter_raw()]


async def by_httpx2_async(url: str) -> list[bytes]:
    async with httpx2.AsyncClient() as client, client.stream("POST", url, content=BODY) as response:
        return [piece async for piece in response.aiter_raw()]


async def by_aiohttp(url: str) -> list[bytes]:
    async with aiohttp.ClientSession() as session, session.post(url, data=BODY) as response:
        return [piece async for piece, _ in response.content.iter_chunks() if piece]


def by_requests(url: str) -> list[bytes]:
    with requests.Session() as session:
        session.trust_env = False
        with session.post(url, data=BODY, stream=True, timeout=60) as response:
            return list(response.iter_content(None))


def by_urllib3(url: str) -> list[bytes]:
    with urllib3.PoolManager(retries=False) as pool:
        response = pool.request("POST", url, body=BODY, preload_content=False)
        return list(response.stream())


def by_botocore(url: str) -> list[bytes]:
    session: Any = botocore.httpsession.URLLib3Session()
    request: Any = botocore.awsrequest.AWSRequest("POST", url, data=BODY, stream_output=True)
    try:
        return list(session.send(request.prepare()).raw.stream())
    finally:
        session.close()


def by_http_client(url: str) -> list[bytes]:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=60)
    try:
        connection.request("POST", f"{parts.path}?{parts.query}".rstrip("?"), BODY)
        response = connection.getresponse()
        return list(iter(response.read1, b""))
    finally:
        connection.close()


def by_urllib(url: str) -> list[bytes]:
    request = urllib.request.Request(url, BODY)  # noqa: S310 - our own URL
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 - as above
        return list(iter(response.read1, b""))


def awaited(client: Callable[[str], Coroutine[None, None, list[bytes]]]) -> Client:
    """Return a blocking version of a client."""

    @wraps(client)
    def run(url: str) -> list[bytes]:
        return asyncio.run(client(url))

    return run


BLOCKING: list[Client] = [
    by_httpx,
    by_httpx2,
    by_requests,
    by_urllib3,
    by_botocore,
    by_http_client,
    by_urllib,
]
AWAITED = [by_httpx_async, by_httpx2_async, by_aiohttp]
CLIENTS = [*BLOCKING, *(awaited(client) for client in AWAITED)]
