"""An agent with a tool that runs another agent."""

from pydantic_ai import Agent, RunContext

writer = Agent("openai:gpt-5-mini", output_type=list[str])
editor = Agent("openai:gpt-5-mini", instructions="Let the writer write jokes, and choose one.")


@editor.tool
async def draft_jokes(ctx: RunContext[None], count: int) -> list[str]:
    """Draft some jokes."""
    result = await writer.run(f"Write {count} jokes.", usage=ctx.usage)
    return result.output


if __name__ == "__main__":
    print(editor.run_sync("Tell me a joke.").output)
