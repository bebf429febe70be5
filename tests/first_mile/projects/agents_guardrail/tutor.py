"""A homework tutor with an input guardrail, and an output type."""

from pydantic import BaseModel

from agents import (
    Agent,
    GuardrailFunctionOutput,
    RunContextWrapper,
    Runner,
    function_tool,
    input_guardrail,
)

FORMULAS = {"circle": "pi * r ** 2", "square": "a ** 2"}


class Answer(BaseModel):
    text: str
    formula: str


@function_tool
def look_up_formula(shape: str) -> str:
    """Look up the formula of the area of a shape."""
    return FORMULAS[shape]


@input_guardrail
async def no_cheating(
    ctx: RunContextWrapper[None], agent: Agent, user_input: str | list
) -> GuardrailFunctionOutput:
    cheating = "exam answers" in str(user_input)
    return GuardrailFunctionOutput(output_info=cheating, tripwire_triggered=cheating)


tutor = Agent(
    name="Maths tutor",
    instructions="You help with homework. Use the formulas of the school.",
    tools=[look_up_formula],
    input_guardrails=[no_cheating],
    output_type=Answer,
)


def main() -> None:
    result = Runner.run_sync(tutor, input("Your question: "))
    print(result.final_output.text)


if __name__ == "__main__":
    main()
