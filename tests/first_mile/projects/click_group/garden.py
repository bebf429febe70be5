"""A command line with several commands, one of which asks a model."""

import json

import click
from openai import OpenAI

PLANTS = {"fern": "every three days", "cactus": "once a month"}
TOOLS = [
    {
        "type": "function",
        "name": "watering",
        "description": "How often a plant needs water.",
        "parameters": {
            "type": "object",
            "properties": {"plant": {"type": "string"}},
            "required": ["plant"],
            "additionalProperties": False,
        },
        "strict": True,
    }
]


def watering(plant: str) -> str:
    return PLANTS[plant]


@click.group()
def cli():
    """Care for your plants."""


@cli.command("list")
def list_plants():
    """List the known plants."""
    for plant in PLANTS:
        click.echo(plant)


@cli.command()
@click.argument("question")
@click.option("--model", default="gpt-5-mini", show_default=True)
def ask(question: str, model: str):
    """Ask the gardener."""
    client = OpenAI()
    items = [{"role": "user", "content": question}]
    while True:
        response = client.responses.create(
            model=model, instructions="You are a gardener.", tools=TOOLS, input=items
        )
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            click.echo(response.output_text)
            return
        items += response.output
        for call in calls:
            output = watering(**json.loads(call.arguments))
            items.append(
                {"type": "function_call_output", "call_id": call.call_id, "output": output}
            )


if __name__ == "__main__":
    cli()
