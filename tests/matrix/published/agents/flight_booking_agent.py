"""pydantic-ai-examples: a program that finds a flight, checks it, and asks a person for a seat."""

from breaks import Break, edit_instructions, replace_tool
from pydantic_ai_examples import flight_booking

from offbook import call, role, when

PROMPT = "Find me a flight from SFO to ANC on 2025-01-10"
CHEAP = {
    "flight_number": "NYC-LA101",
    "price": 250,
    "origin": "SFO",
    "destination": "ANC",
    "date": "2025-01-10",
}
OTHER_ORIGIN = {**CHEAP, "flight_number": "BOS-SEA303", "origin": "BOS"}


def test_the_flight_is_checked_and_bought(offbook, monkeypatch, capsys):
    answers = iter(["buy", "row 14, at the window"])
    monkeypatch.setattr(flight_booking.Prompt, "ask", lambda *_, **__: next(answers))
    run = offbook.drive(flight_booking.main).run(
        role(
            "extraction",
            [call("final_result", {"response": [CHEAP, OTHER_ORIGIN]}, unanswered=True)],
            system="Extract all the flight details",
        ),
        when(
            PROMPT,
            [
                call("extract_flights"),
                call("final_result_FlightDetails", OTHER_ORIGIN),
                call("final_result_FlightDetails", CHEAP, unanswered=True),
            ],
        ),
        when(
            "row 14, at the window",
            [call("final_result_SeatPreference", {"row": 14, "seat": "A"}, unanswered=True)],
        ),
    )
    assert "NYC-LA101" in run.results("extract_flights")[0].text
    refused = run.results("final_result_FlightDetails")[0].text
    assert "Flight should have origin SFO, not BOS" in refused
    assert "find the cheapest flight" in run.requests[0].system
    extraction = next(r for r in run.requests if r.system.startswith("Extract"))
    assert extraction.messages[0].text == flight_booking.flights_web_page
    bought = capsys.readouterr().out.splitlines()[-1]
    assert "flight_number='NYC-LA101'" in bought
    assert "SeatPreference(row=14, seat='A')" in bought


def accept_everything(monkeypatch):
    async def accept(_context, output):
        return output

    monkeypatch.setattr(AGENT._output_validators[0], "function", accept)


async def return_no_flights(_context):
    return []


async def extract_from_nothing(context):
    result = await flight_booking.extraction_agent.run("(empty page)", usage=context.usage)
    return result.output


async def buy_nothing(flight_details, seat):
    print("Thank you.")


AGENT = flight_booking.search_agent
BREAKS = {
    "the validator accepts everything": Break(
        accept_everything,
        "when('Find me a flight from SFO to ANC on 2025-01-10'): playbook not fully consumed",
    ),
    "the other agent is not asked": replace_tool(
        AGENT,
        "extract_flights",
        return_no_flights,
        "role('extraction'): playbook not fully consumed",
    ),
    "the other agent gets another page": replace_tool(
        AGENT, "extract_flights", extract_from_nothing, "(empty page)"
    ),
    "the flight is not bought": Break(
        lambda patch: patch.setattr(flight_booking, "buy_tickets", buy_nothing), "Thank you."
    ),
    "the prompt is changed": edit_instructions(AGENT, "cheapest", "dearest", "find the dearest"),
}
