FORECASTS = {"sf": "It's 60 degrees and foggy.", "nyc": "It's 90 degrees and sunny."}


def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return FORECASTS[city]
