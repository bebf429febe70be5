"""CrewAI: a crew of one agent with a tool, on its own OpenAI client."""

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from harness import MODEL, OPENAI, PROMPT, STREAM, get_weather, print_result

llm = LLM(model=f"openai/{MODEL}", base_url=OPENAI, api_key="none", stream=STREAM)
agent = Agent(
    role="Reporter",
    goal="Answer questions.",
    backstory="You know the weather.",
    tools=[tool(get_weather)],
    llm=llm,
)
task = Task(description=PROMPT, expected_output="One sentence.", agent=agent)
output = Crew(agents=[agent], tasks=[task]).kickoff()
print_result(output.raw, "crewai", "openai")
