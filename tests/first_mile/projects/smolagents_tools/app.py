from smolagents import OpenAIServerModel, Tool, ToolCallingAgent, tool


@tool
def get_travel_duration(start: str, destination: str) -> str:
    """Gets the travel time between two places.

    Args:
        start: The place from which you start.
        destination: The place of arrival.
    """
    return f"From {start} to {destination}: 2 hours"


class HotelTool(Tool):
    name = "hotel_price"
    description = "Returns the price of a hotel."
    inputs = {"city": {"type": "string", "description": "The city of the hotel."}}
    output_type = "string"

    def forward(self, city: str) -> str:
        return f"A night in {city} costs 90 EUR"


def main():
    model = OpenAIServerModel(model_id="gpt-5")
    return ToolCallingAgent(tools=[get_travel_duration, HotelTool()], model=model)


agent = main()
