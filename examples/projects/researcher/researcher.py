"""A researcher in LangGraph: it answers from a library, and names the page that it has read."""

from langchain.agents import create_agent
from langchain_core.tools import tool

LIBRARY = {
    "kettles": "An electric kettle uses 2 to 3 kW. [library/kettles]",
    "lamps": "An LED lamp uses 5 to 10 W. [library/lamps]",
}


@tool
def search(words: str) -> str:
    """Search the library; returns the names of pages."""
    found = [name for name in LIBRARY if name.rstrip("s") in words.lower()]
    return ", ".join(found) or "no page found"


@tool
def read_page(name: str) -> str:
    """Read a page of the library."""
    return LIBRARY.get(name, f"there is no page {name!r}")


def make_researcher(model="openai:gpt-4.1-mini"):
    """Return the agent, a compiled graph."""
    return create_agent(
        model,
        tools=[search, read_page],
        system_prompt="Answer from the library only, and name the page.",
        name="researcher",
    )
