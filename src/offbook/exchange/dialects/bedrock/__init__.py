"""Amazon Bedrock's Converse API."""

from offbook.exchange.dialects.dialect import API_KEY, Provider

PROVIDER = Provider(
    name="bedrock",
    dialect="offbook.exchange.dialects.bedrock.bedrock_dialect:Bedrock",
    url="https://bedrock-runtime.us-east-1.amazonaws.com",
    url_variables=("AWS_ENDPOINT_URL_BEDROCK_RUNTIME",),
    key_variables=("AWS_BEARER_TOKEN_BEDROCK",),
    region_patterns=(r"bedrock-runtime(-fips)?\.[a-z0-9-]+\.amazonaws\.com(\.cn)?",),
    client_env={
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": "{url}",
        "AWS_BEARER_TOKEN_BEDROCK": API_KEY,
    },
    replaced_env={"AWS_BEDROCK_RUNTIME_ENDPOINT": "{url}"},  # litellm
    call_id=("tooluse_", 22),
    arguments="streamed",
    otel_name="aws.bedrock",
    sampling={"temperature": "inferenceConfig.temperature"},
    sdks={"boto3": "Bedrock"},
    unscripted={"additionalModelResponseFieldPaths": (), "guardrailConfig.trace": ("disabled",)},
)
