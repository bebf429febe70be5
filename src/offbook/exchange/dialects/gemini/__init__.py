"""Google's Gemini API, also on Vertex AI."""

from offbook.exchange.dialects.dialect import API_KEY, ModelPrice, Provider

PROVIDER = Provider(
    name="gemini",
    dialect="offbook.exchange.dialects.gemini.gemini_dialect:Gemini",
    url="https://generativelanguage.googleapis.com",
    url_variables=("GOOGLE_GEMINI_BASE_URL", "GEMINI_BASE_URL"),
    key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    hosts=("generativelanguage.googleapis.com", "aiplatform.googleapis.com"),
    region_patterns=(
        r"[a-z0-9-]+-aiplatform\.googleapis\.com",
        r"aiplatform\.[a-z0-9-]+\.rep\.googleapis\.com",
    ),
    gateway_variables=("GOOGLE_BASE_URL",),
    client_env={
        "GOOGLE_GEMINI_BASE_URL": "{url}",
        "GOOGLE_BASE_URL": "{url}",
        "GEMINI_API_KEY": API_KEY,
        "GOOGLE_GENERATIVE_AI_API_KEY": API_KEY,
    },
    # google-genai prefers GOOGLE_API_KEY, and warns of two keys.
    replaced_env={
        "GOOGLE_API_KEY": API_KEY,
        "PALM_API_KEY": API_KEY,
        "GEMINI_BASE_URL": "{url}",
        "GEMINI_API_BASE": "{url}",
        "GOOGLE_VERTEX_BASE_URL": "{url}",
    },
    opencode={"google": "{url}/v1beta"},
    arguments="object",
    otel_name="gcp.gemini",
    sampling={"temperature": "generationConfig.temperature", "seed": "generationConfig.seed"},
    sdks={"google.genai": "google-genai"},
    prices={
        "gemini-2.5-flash": ModelPrice(0.3, 2.5, 0.03),
        "gemini-2.5-flash-lite": ModelPrice(0.1, 0.4, 0.01),
        "gemini-2.5-pro": ModelPrice(1.25, 10.0, 0.125),
        "gemini-3.1-flash-lite": ModelPrice(0.25, 1.5, 0.025),
        "gemini-3.5-flash": ModelPrice(1.5, 9.0, 0.15),
        "gemini-3.5-flash-lite": ModelPrice(0.3, 2.5, 0.03),
        "gemini-3.6-flash": ModelPrice(0.75, 3.75, 0.075),
        "gemini-3.7-flash": ModelPrice(0.75, 3.75, 0.075),
        "gemini-3.8-flash": ModelPrice(0.75, 3.75, 0.075),
    },
    unscripted={
        "generationConfig.candidateCount": (1,),
        "generationConfig.responseLogprobs": (False,),
        "generationConfig.responseModalities": ("TEXT", "AUDIO"),
    },
)
