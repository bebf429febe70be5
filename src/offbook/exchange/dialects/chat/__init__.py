"""OpenAI's chat completions, and the providers and gateways that copied the format."""

from offbook.exchange.dialects.dialect import API_KEY, HostClient, ModelPrice, Provider

# The providers that copied the format: the host, its key, and the variables of its base URL with
# the path of each. The names and the paths are those of litellm 1.108 (`…_API_BASE`) and of the
# SDKs cerebras-cloud-sdk 1.91, fireworks-ai 1.2, groq 1.7 and together 3.0.
COMPATIBLE = {
    "ai-gateway.vercel.sh": HostClient("AI_GATEWAY_API_KEY", VERCEL_AI_GATEWAY_API_BASE="/v1"),
    "api.cerebras.ai": HostClient(
        "CEREBRAS_API_KEY", CEREBRAS_BASE_URL="", CEREBRAS_API_BASE="/v1"
    ),
    "api.deepinfra.com": HostClient("DEEPINFRA_API_KEY", DEEPINFRA_API_BASE="/v1/openai"),
    "api.deepseek.com": HostClient("DEEPSEEK_API_KEY", DEEPSEEK_API_BASE="/beta"),
    "api.fireworks.ai": HostClient(
        "FIREWORKS_API_KEY", FIREWORKS_BASE_URL="", FIREWORKS_API_BASE="/inference/v1"
    ),
    "api.groq.com": HostClient("GROQ_API_KEY", GROQ_BASE_URL="", GROQ_API_BASE="/openai/v1"),
    "api.hyperbolic.xyz": HostClient("HYPERBOLIC_API_KEY", HYPERBOLIC_API_BASE="/v1"),
    "api.minimax.io": HostClient("MINIMAX_API_KEY", MINIMAX_API_BASE="/v1"),
    "api.moonshot.ai": HostClient("MOONSHOT_API_KEY", MOONSHOT_API_BASE="/v1"),
    "api.novita.ai": HostClient("NOVITA_API_KEY", NOVITA_API_BASE="/v3/openai"),
    "api.perplexity.ai": HostClient("PERPLEXITYAI_API_KEY", PERPLEXITY_API_BASE=""),
    "api.sambanova.ai": HostClient("SAMBANOVA_API_KEY", SAMBANOVA_API_BASE="/v1"),
    "api.studio.nebius.ai": HostClient("NEBIUS_API_KEY", NEBIUS_API_BASE="/v1"),
    "api.together.ai": HostClient(
        "TOGETHER_API_KEY", TOGETHER_BASE_URL="", TOGETHER_AI_API_BASE="/v1"
    ),
    "api.x.ai": HostClient("XAI_API_KEY", XAI_API_BASE="/v1"),
    "api.z.ai": HostClient("ZAI_API_KEY", ZAI_API_BASE="/api/paas/v4"),
    "dashscope-intl.aliyuncs.com": HostClient(
        "DASHSCOPE_API_KEY", DASHSCOPE_API_BASE="/compatible-mode/v1"
    ),
    "integrate.api.nvidia.com": HostClient("NVIDIA_API_KEY", NVIDIA_NIM_API_BASE="/v1"),
    "openrouter.ai": HostClient("OPENROUTER_API_KEY", OPENROUTER_API_BASE="/api/v1"),
    "router.huggingface.co": HostClient("HUGGINGFACE_API_KEY", HUGGINGFACE_API_BASE="/v1"),
}
# A client that finds one of these prefers that provider, or refuses to choose: openai 3.49 does if
# there is a key of Azure besides its own. So they are replaced where the user has them. The others
# are keys of models that are not scripted, of litellm 1.108 and of the providers' own SDKs.
USER_BASE_VARIABLES = ("AZURE_OPENAI_ENDPOINT", "AZURE_API_BASE", "AZURE_AI_API_BASE")
USER_GATEWAY_VARIABLES = ("LITELLM_PROXY_API_BASE", "PORTKEY_BASE_URL")
USER_KEY_VARIABLES = (
    *("AZURE_OPENAI_API_KEY", "AZURE_API_KEY", "AZURE_AI_API_KEY", "AZURE_OPENAI_AD_TOKEN"),
    *("LITELLM_PROXY_API_KEY", "PORTKEY_API_KEY", "OR_API_KEY"),
    *("TOGETHERAI_API_KEY", "TOGETHER_AI_API_KEY", "FIREWORKS_AI_API_KEY", "PERPLEXITY_API_KEY"),
    *("DEEPINFRA_TOKEN", "NVIDIA_NIM_API_KEY", "VERCEL_AI_GATEWAY_API_KEY", "V0_API_KEY"),
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACEHUB_API_TOKEN", "REPLICATE_API_TOKEN"),
    *("REPLICATE_API_KEY", "AI21_API_KEY", "ANYSCALE_API_KEY", "BASETEN_API_KEY"),
    *("DATABRICKS_API_KEY", "CLOUDFLARE_API_KEY", "WATSONX_API_KEY", "VOLCENGINE_API_KEY"),
    *("ARK_API_KEY", "ZHIPUAI_API_KEY", "POE_API_KEY", "LLAMA_API_KEY", "INCEPTION_API_KEY"),
    *("VOYAGE_API_KEY", "JINA_API_KEY", "ELEVENLABS_API_KEY", "DEEPGRAM_API_KEY"),
    *("ASSEMBLYAI_API_KEY", "STABILITY_API_KEY", "FAL_KEY", "RUNWAYML_API_KEY"),
)

PROVIDER = Provider(
    name="openai-chat",
    dialect="offbook.exchange.dialects.chat.chat_dialect:Chat",
    url="https://api.openai.com/v1",
    url_variables=("OPENAI_BASE_URL",),
    key_variables=("OPENAI_API_KEY",),
    hosts=(
        *COMPATIBLE,
        "api.openai.com",
        "api.together.xyz",
        "api.moonshot.cn",
        "api-inference.huggingface.co",
        "models.github.ai",
        "models.inference.ai.azure.com",
        "dashscope.aliyuncs.com",
    ),
    host_patterns=(
        r".+\.openai\.azure\.com",
        r".+\.services\.ai\.azure\.com",
        r".+\.cognitiveservices\.azure\.com",
        r"[a-z]{2}\.api\.openai\.com",
    ),
    gateway_variables=(
        "OPENAI_API_BASE",
        "AZURE_OPENAI_ENDPOINT",
        "LITELLM_PROXY_API_BASE",
    ),
    client_env={
        "OPENAI_BASE_URL": "{url}/v1",
        "OPENAI_API_BASE": "{url}/v1",
        "OPENAI_API_KEY": API_KEY,
    },
    host_clients=COMPATIBLE,
    replaced_env={
        **dict.fromkeys(USER_BASE_VARIABLES, "{url}"),
        **dict.fromkeys(USER_GATEWAY_VARIABLES, "{url}/v1"),
        **dict.fromkeys(USER_KEY_VARIABLES, API_KEY),
    },
    otel_name="openai",
    sampling={"temperature": "temperature", "seed": "seed"},
    sdks={"openai": "OpenAI SDK", "litellm": "litellm"},
    prices={
        "gpt-4.1": ModelPrice(2.0, 8.0, 0.5),
        "gpt-4.1-mini": ModelPrice(0.4, 1.6, 0.1),
        "gpt-4.1-nano": ModelPrice(0.1, 0.4, 0.025),
        "gpt-4o": ModelPrice(2.5, 10.0, 1.25),
        "gpt-4o-mini": ModelPrice(0.15, 0.6, 0.075),
        "gpt-5": ModelPrice(1.25, 10.0, 0.125),
        "gpt-5-mini": ModelPrice(0.25, 2.0, 0.025),
        "gpt-5-nano": ModelPrice(0.05, 0.4, 0.005),
        "gpt-5.1": ModelPrice(1.25, 10.0, 0.125),
        "gpt-5.2": ModelPrice(1.75, 14.0, 0.175),
        "gpt-5.4": ModelPrice(2.5, 15.0, 0.25),
        "gpt-5.4-mini": ModelPrice(0.75, 4.5, 0.075),
        "gpt-5.4-nano": ModelPrice(0.2, 1.25, 0.02),
        "gpt-5.5": ModelPrice(5.0, 30.0, 0.5),
        "gpt-5.6": ModelPrice(4.0, 20.0, 0.4, 5.0),
        "gpt-5.6-luna": ModelPrice(0.2, 1.2, 0.02, 0.25),
        "gpt-5.6-terra": ModelPrice(2.0, 12.0, 0.2, 2.5),
        "o3": ModelPrice(2.0, 8.0, 0.5),
        "o3-mini": ModelPrice(1.1, 4.4, 0.55),
        "o4-mini": ModelPrice(1.1, 4.4, 0.275),
    },
    unscripted={"modalities": ("text", "audio")},
)
