"""LangChain's agents on LangGraph, with the models of OpenAI and Anthropic."""

from typing import Any

from harness import MODEL, PROMPT, RETRIES, STREAM, VARIANT, get_weather, print_result
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings


def make_model() -> Any:
    if VARIANT == "anthropic":
        return ChatAnthropic(model_name=MODEL, max_retries=RETRIES, streaming=STREAM)
    return ChatOpenAI(
        model=MODEL, max_retries=RETRIES, use_responses_api=VARIANT == "responses", streaming=STREAM
    )


if VARIANT == "embeddings":
    vectors = OpenAIEmbeddings(model=MODEL, check_embedding_ctx_length=False)
    one, two = vectors.embed_documents(["a", "b"])
    assert one != two
    print_result(
        ChatOpenAI(model=MODEL, max_retries=RETRIES).invoke(PROMPT).content, "langchain-openai"
    )
else:
    agent: Any = create_agent(make_model(), tools=[tool(get_weather)])
    state = agent.invoke({"messages": [{"role": "user", "content": PROMPT}]})
    print_result(state["messages"][-1].text, "langchain", "langgraph")
