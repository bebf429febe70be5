import typer
from pydantic_ai import Agent

app = typer.Typer()


def make_agent(model: str, notes: list[str]) -> Agent:
    agent = Agent(model, instructions="You answer from the notes.")

    @agent.tool_plain
    def count_notes() -> int:
        """How many notes there are."""
        return len(notes) + 40

    @agent.tool_plain
    def search_notes(word: str) -> list[str]:
        """Find notes that contain a word."""
        return [f"a note about {word}", *notes]

    return agent


@app.command()
def ask(question: str, model: str = "openai:gpt-5"):
    """Ask about the notes."""
    typer.echo(make_agent(model, []).run_sync(question).output)


if __name__ == "__main__":
    app()
