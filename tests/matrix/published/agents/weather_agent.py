"""pydantic-ai-examples: the weather agent, whose tools ask an HTTP service."""

import httpx
import pytest
import respx
from breaks import drop_tool, replace_tool
from pydantic_ai_examples import weather_agent

from offbook import call, say, when

SERVICE = "https://demo-endpoints.pydantic.workers.dev"


@pytest.fixture
def service():
    with respx.mock(base_url=SERVICE) as router:
        router.get("/latlng", params={"location": "London"}).respond(json={"lat": 51, "lng": -0.1})
        router.get("/number").respond(text="21")
        router.get("/weather", params={"lat": 51.0, "lng": -0.1}).respond(text="Sunny")
        yield router


def test_the_weather_is_of_the_place(offbook, service):
    rehearsal = offbook.drive(
        weather_agent.weather_agent, deps=weather_agent.Deps(client=httpx.AsyncClient())
    )
    run = rehearsal.run(
        when(
            "How is the weather in London?",
            [
                call("get_lat_lng", {"location_description": "London"}),
                call("get_weather", {"lat": 51, "lng": -0.1}),
                say("It is sunny, 21 °C."),
            ],
        )
    )
    assert [(tool.name, tool.result.text) for tool in run.executed] == [
        ("get_lat_lng", '{"lat":51.0,"lng":-0.1}'),
        ("get_weather", '{"temperature":"21 °C","description":"Sunny"}'),
    ]
    assert run.output == "It is sunny, 21 °C."


async def swap_the_arguments(context, lat, lng):
    return await weather_agent.get_weather(context, lat=lng, lng=lat)


async def swallow_the_error(context, location_description):
    try:
        return await weather_agent.get_lat_lng(context, location_description.upper())
    except Exception:  # noqa: BLE001 - the break
        return "unknown"


async def return_nothing(_context, lat, lng):
    pass


AGENT = weather_agent.weather_agent
BREAKS = {
    "the arguments are swapped": replace_tool(
        AGENT, "get_weather", swap_the_arguments, "weather?lat=-0.1&lng=51.0"
    ),
    "an error is swallowed": replace_tool(
        AGENT, "get_lat_lng", swallow_the_error, "('get_lat_lng', 'unknown')"
    ),
    "the tool returns nothing": replace_tool(
        AGENT, "get_weather", return_nothing, "('get_weather', '') !="
    ),
    "the tool is dropped": drop_tool(AGENT, "get_weather"),
}
