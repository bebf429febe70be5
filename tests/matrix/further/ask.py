"""Ask a model by one of the clients of Python: python ask.py CLIENT URL BODY."""

import asyncio
import ssl
import sys
from http.client import HTTPSConnection
from urllib.parse import urlsplit

CLIENT, URL, BODY = sys.argv[1:4]
HOST, PATH = urlsplit(URL).hostname or "", urlsplit(URL).path
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(BODY)}\r\n"
REQUEST = f"{HEAD}Connection: close\r\n\r\n{BODY}".encode()


def http_client() -> object:
    connection = HTTPSConnection(HOST)
    connection.request("POST", PATH, BODY)
    return connection.getresponse().read()


def raw() -> object:
    """Connect without the hook of the proxy: `python -I` imports no sitecustomize."""
    import socket

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(socket.create_connection((HOST, 443)), server_hostname=HOST) as tls:
        tls.sendall(REQUEST)
        return b"".join(iter(lambda: tls.recv(65536), b""))


async def streams() -> object:
    reader, writer = await asyncio.open_connection(HOST, 443, ssl=True)
    writer.write(REQUEST)
    reply = await reader.read()
    writer.close()
    return reply


def uvloop() -> object:
    import uvloop

    return uvloop.run(streams())


async def aiohttp() -> object:
    import aiohttp

    async with aiohttp.ClientSession() as session:
        return await (await session.post(URL, data=BODY)).text()


def aiohttp_uvloop() -> object:
    import uvloop

    return uvloop.run(aiohttp())


def urllib3() -> object:
    import urllib3

    return urllib3.request("POST", URL, body=BODY, retries=False).data


def tornado() -> object:
    from tornado.httpclient import AsyncHTTPClient

    async def ask() -> object:
        return (await AsyncHTTPClient().fetch(URL, method="POST", body=BODY)).body

    return asyncio.run(ask())


def pycurl() -> object:
    import pycurl

    curl, received = pycurl.Curl(), list[bytes]()
    curl.setopt(pycurl.URL, URL)
    curl.setopt(pycurl.POSTFIELDS, BODY)
    curl.setopt(pycurl.WRITEFUNCTION, received.append)
    curl.perform()
    return b"".join(received)


def curl_cffi() -> object:
    from curl_cffi import requests

    return requests.post(URL, data=BODY).text


def niquests() -> object:
    import niquests

    return niquests.post(URL, data=BODY).text


def httplib2() -> object:
    import httplib2

    return httplib2.Http().request(URL, "POST", BODY)[1]


reply = globals()[CLIENT]()
print(asyncio.run(reply) if asyncio.iscoroutine(reply) else reply)
