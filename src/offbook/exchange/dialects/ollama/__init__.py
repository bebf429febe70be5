"""Ollama's own API; its copy of OpenAI's format is the dialect `openai-chat`."""

from offbook.exchange.dialects.dialect import API_KEY, Provider

PROVIDER = Provider(
    name="ollama",
    dialect="offbook.exchange.dialects.ollama.ollama_dialect:Ollama",
    url="http://localhost:11434",
    url_variables=("OLLAMA_HOST", "OLLAMA_BASE_URL", "OLLAMA_API_BASE"),
    key_variables=("OLLAMA_API_KEY",),
    hosts=("ollama.com",),
    local_ports=(11434,),
    client_env=dict.fromkeys(("OLLAMA_HOST", "OLLAMA_BASE_URL", "OLLAMA_API_BASE"), "{url}"),
    replaced_env={"OLLAMA_API_KEY": API_KEY},
    arguments="object",
    otel_name="ollama",
    sampling={"temperature": "options.temperature", "seed": "options.seed"},
    sdks={"ollama": "Ollama"},
    unscripted={"logprobs": (False,)},
)
