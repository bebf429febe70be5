"""A world for a search: the HTTP service of the tools, which knows London and Wiltshire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
from pydantic_ai_examples import weather_agent

from offbook import drive

if TYPE_CHECKING:
    from offbook.runs.rehearsal import Rehearsal


def world() -> Rehearsal:
    """Return a new agent."""
    places = {"London": {"lat": 51.5, "lng": -0.1}, "Wiltshire": {"lat": 51.3, "lng": -1.9}}

    def answer(request: httpx.Request) -> httpx.Response:
        asked = request.url.params
        if request.url.path == "/latlng":
            place = places.get(asked["location"])
            return httpx.Response(404) if place is None else httpx.Response(200, json=place)
        return httpx.Response(200, text="21" if request.url.path == "/number" else "Sunny")

    client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    return drive(weather_agent.weather_agent, deps=weather_agent.Deps(client=client))
