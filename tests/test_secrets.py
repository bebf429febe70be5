"""No secret is left in a text, whatever its format and context."""

from __future__ import annotations

import base64
import html
import json
import re
from random import Random
from typing import Any, cast
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offbook.secrets import (
    MASK,
    excerpt,
    hide_bytes,
    hide_lines,
    hide_secrets,
    is_secret_name,
    known_secrets,
    outgoing,
)
from offbook.secrets.key_formats import KEY_FORMATS, LOOSE_PLACES, PLACES
from offbook.secrets.masks import cut_text, ending, find_secrets, hide_parts
from tests.planted_secrets import CHANNELS, draw, plant

LETTERS = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ"
HEX = "0123456789abcdef0123456789abcdef"
ALPHABET = "QwErTyUiOpAsDfGhJkLzXcVbNmqWeRtYuIoPaSdF"
UUID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
KEYS = {
    "openai": f"sk-proj-{LETTERS}",
    "anthropic": f"sk-ant-api03-{LETTERS}",
    "openrouter": f"sk-or-v1-{HEX}",
    "google": f"AIza{LETTERS}12345",
    "google oauth": f"ya29.{LETTERS}",
    "google client": f"GOCSPX-{LETTERS}",
    "aws": "AKIA1234567890ABCDEF",
    "aws session": "ASIA1234567890ABCDEF",
    "github": f"ghp_{LETTERS}",
    "github app": f"ghs_{LETTERS}",
    "github fine": f"github_pat_{LETTERS}",
    "gitlab": f"glpat-{LETTERS}",
    "slack": f"xoxb-{LETTERS}",
    "stripe": f"sk_live_{LETTERS}",
    "stripe restricted": f"rk_test_{LETTERS}",
    "stripe webhook": f"whsec_{LETTERS}",
    "hugging face": f"hf_{LETTERS}",
    "groq": f"gsk_{LETTERS}",
    "xai": f"xai-{LETTERS}",
    "replicate": f"r8_{LETTERS}",
    "perplexity": f"pplx-{LETTERS}",
    "nvidia": f"nvapi-{LETTERS}",
    "npm": f"npm_{LETTERS}",
    "pypi": f"pypi-{LETTERS}",
    "digitalocean": f"dop_v1_{HEX}{HEX}",
    "docker": f"dckr_pat_{LETTERS}",
    "sendgrid": f"SG.{LETTERS}.{LETTERS}",
    "mailgun": f"key-{HEX}",
    "langsmith": f"lsv2_pt_{LETTERS}",
    "telegram": f"123456789:AA{LETTERS}{LETTERS[:8]}",
    "databricks": f"dapi{HEX}",
    "vault": f"hvs.{LETTERS}",
    "shopify": f"shpat_{LETTERS}",
    "linear": f"lin_api_{LETTERS}",
    "notion": f"ntn_{LETTERS}",
    "supabase": f"sbp_{LETTERS}",
    "grafana": f"glsa_{LETTERS}",
    "new relic": f"NRAK-{LETTERS.upper()}",
    "planetscale": f"pscale_tkn_{LETTERS}",
    "cerebras": f"csk-{LETTERS}",
    "tavily": f"tvly-{LETTERS}",
    "helicone": "sk-helicone-a1b2c3d-e4f5g6h-i7j8k9l-m1n2o3p",
    "adafruit": f"aio_{LETTERS}12",
    "gocardless": f"live_{LETTERS}{LETTERS[:14]}",
    "facebook page": f"EAAG{LETTERS * 4}",
    "e2b": f"e2b_{LETTERS}",
    "atlassian": f"ATATT3{LETTERS}",
    "age": f"AGE-SECRET-KEY-1{LETTERS.upper()}",
    "postman": f"PMAK-{LETTERS}",
    "doppler": f"dp.pt.{LETTERS}",
    "gitlab deploy": f"gldt-{LETTERS}",
    "gitlab runner": f"glrt-{LETTERS}",
    "rubygems": f"rubygems_{LETTERS}",
    "web token": f"eyJhbGciOiJI.eyJzdWIiOiIx.{LETTERS}",
    "encrypted web token": f"eyJhbGciOiJI..{LETTERS}.{LETTERS}.{LETTERS}",
    "openai session": f"sess-{LETTERS}{LETTERS}",
    "google refresh": f"1//0{LETTERS}{LETTERS}",
    "hugging face org": f"api_org_{LETTERS}",
    "voyage": f"pa-{LETTERS}{LETTERS}",
    "jina": f"jina_{LETTERS}{LETTERS}",
    "pinecone": f"pcsk_{LETTERS}",
    "firecrawl": f"fc-{HEX}",
    "modal": f"as-{LETTERS[:22]}",
    "cursor": f"key_{HEX}{HEX}",
    "aws pair": f"AKIA1234567890ABCDEF:{LETTERS}{LETTERS[:14]}",
    "bedrock": f"bedrock-api-key-{LETTERS}",
    "entra": f"abc8Q~{LETTERS}{LETTERS[:8]}",
    "alibaba": f"LTAI{LETTERS}",
    "digitalocean refresh": f"dor_v1_{HEX}{HEX}",
    "heroku": f"HRKU-AA{LETTERS}{LETTERS}",
    "fly": f"fm2_{LETTERS}{LETTERS}",
    "cloudflare": f"v1.0-{HEX[:24]}-{HEX * 4}",
    "netlify": f"nfp_{LETTERS}{LETTERS}",
    "gitlab build": f"glcbt-64_{LETTERS}",
    "gitlab routable": f"glpat-{LETTERS}.01.{LETTERS}",
    "gitlab registration": f"GR1348941{LETTERS}",
    "clojars": f"CLOJARS_{HEX}{HEX}",
    "artifactory": f"AKCp{LETTERS * 3}",
    "buildkite": f"bkua_{HEX}",
    "figma": f"figd_{LETTERS}{LETTERS}",
    "harness": f"pat.{LETTERS[:22]}.{HEX[:24]}.{LETTERS[:20]}",
    "pulumi": f"pul-{HEX}01234567",
    "terraform": f"{LETTERS[:14]}.atlasv1.{LETTERS * 3}",
    "vault batch": f"hvb.{LETTERS}",
    "doppler service": f"dp.st.dev.{LETTERS}",
    "1password": f"ops_eyJ{LETTERS * 3}",
    "tailscale": f"tskey-auth-{LETTERS}",
    "sentry user": f"sntryu_{HEX}",
    "posthog": f"phx_{LETTERS}",
    "grafana cloud": f"glc_{LETTERS}{LETTERS}",
    "dynatrace": f"dt0c01.{LETTERS.upper()[:24]}.{HEX.upper()}{HEX.upper()}",
    "supabase secret": f"sb_secret_{LETTERS}",
    "slack browser": f"xoxc-{LETTERS}",
    "slack session": f"xoxd-{LETTERS}",
    "twilio": f"SK{HEX}",
    "mailchimp": f"{HEX}-us12",
    "square": f"sq0csp-{LETTERS}",
    "square access": f"EAAAl{LETTERS}{LETTERS}{LETTERS[:7]}",
    "shopify shared": f"shpss_{HEX}",
    "facebook": f"EAACEdEose0cBA{LETTERS}",
    "duffel": f"duffel_live_{LETTERS}{LETTERS}",
    "easypost": f"EZAK{LETTERS}{LETTERS}",
    "linear oauth": f"lin_oauth_{LETTERS}",
    "notion before": f"secret_{LETTERS}{LETTERS[:17]}",
    "a private key in base64": base64.b64encode(
        f"-----BEGIN PRIVATE KEY-----\n{LETTERS}\n".encode()
    ).decode(),
    # letters only: the length of a whole key is enough
    "github letters": f"ghp_{ALPHABET[:36]}",
    "gitlab letters": f"glpat-{ALPHABET[:20]}",
    "hugging face letters": f"hf_{ALPHABET[:34]}",
    "hugging face small letters": f"hf_{ALPHABET[:34].lower()}",
    "npm letters": f"npm_{ALPHABET[:36]}",
    "stripe letters": f"sk_live_{ALPHABET[:24]}",
    "aws letters": "AKIAQWERTYUIOPASDFGH",
    "openai service": f"sk-svcacct-{LETTERS}",
    "langfuse": f"sk-lf-{UUID}",
    "gemini": f"AQ.Ab{LETTERS}{LETTERS}",
    "discord": f"MTA4{LETTERS[:22]}.{LETTERS[:6]}.{LETTERS}{LETTERS[:12]}",
    "asana": f"1/1199990000111122:{HEX}",
    "airtable": f"pat{LETTERS[:14]}.{HEX}{HEX}",
    "adobe": f"p8e-{HEX}",
    "flutterwave": f"FLWSECK_TEST-{HEX}-X",
    "infracost": f"ico-{LETTERS}{LETTERS[:6]}",
    "maxmind": f"{LETTERS[:6]}_{LETTERS}{LETTERS[:3]}_mmk",
    "octopus": f"API-{LETTERS.upper()}",
    "openshift": f"sha256~{LETTERS}{LETTERS[:17]}",
    "plaid": f"access-production-{UUID}",
    "prefect": f"pnu_{LETTERS}{LETTERS[:10]}",
    "brevo": f"xkeysib-{HEX}{HEX}-{LETTERS[:16]}",
    "sonar": f"squ_{HEX}01234567",
    "typeform": f"tfp_{LETTERS}{LETTERS}",
    "razorpay": f"rzp_live_{LETTERS[:14]}",
    "contentful": f"CFPAT-{LETTERS}{LETTERS[:17]}",
    "hubspot": f"pat-na1-{UUID}",
    "cloudflare user": f"cfut_{LETTERS}{LETTERS}",
    "vercel": f"vcp_{LETTERS}{LETTERS}",
    "resend": f"re_{LETTERS[:8]}_{LETTERS[:24]}",
    "neon": f"napi_{HEX}{HEX}",
    "circleci": f"CCIPAT_{LETTERS[:22]}_{HEX}01234567",
    "launchdarkly": f"sdk-{UUID}",
    "1password secret": "A3-ABC123-DEF456-GHI78-JKL90-MNO12-PQR34",
    "braintree": f"access_token$production$0123456789abcdef${HEX}",
    "secret token": f"secret-token:{LETTERS}",
    "bcrypt": f"$2b$12${LETTERS}{LETTERS}",
    "logfire": f"pylf_v1_us_{LETTERS}{LETTERS[:17]}",
    "azure": f"{LETTERS}{LETTERS}JQQJ99BA{LETTERS[:24]}",
    "azure storage": f"{LETTERS * 2}{LETTERS[:24]}+ASt{LETTERS[:5]}==",
    "azure devops": f"{LETTERS * 2}{LETTERS[:24]}AZDO{LETTERS[:4]}",
    "docker swarm": f"SWMTKN-1-{HEX}{HEX[:18]}-{HEX[:25]}",
    "convex": f"prod:happy-otter-123|{LETTERS}{LETTERS}",
    "axiom": f"xaat-{UUID}",
    "paddle": f"pdl_live_apikey_{HEX[:26]}_{LETTERS[:22]}_aB3",
    "polar": f"polar_oat_{LETTERS}{LETTERS[:17]}",
    "stytch": f"secret-live-{LETTERS}{LETTERS[:9]}=",
    "mercado pago": f"APP_USR-1234567890123456-010124-{HEX}-123456789",
    "vault before 1.10": f"s.{LETTERS[:24]}",
    "dropbox": f"sl.u.{LETTERS * 5}",
    "google service": f"ya29.c.{LETTERS}{LETTERS}",
    "scaleway": "SCWQWERTYUIOPASDFGHJ",
    "post-quantum age": f"AGE-SECRET-KEY-PQ-1{LETTERS.upper()}",
}
CONTEXTS = {
    "alone": "{}",
    "in a sentence": "the key is {}, keep it",
    "in JSON": '{{"content": "use {} now"}}',
    "in JSON in JSON": '{{"arguments": "{{\\"k\\": \\"{}\\"}}"}}',
    "in a URL": "https://host/path?x={}&y=1",
    "at a line's end": "first\nkey {}\nlast",
    "quoted in a mail": "> key {}\n",
    "in a comment": "# {}",
    "in Markdown": "| key | **{}** |",
    "in a color": "\x1b[1;31m{}\x1b[0m",
    "in an escaped color": '"\\u001b[31m{}\\u001b[0m"',
    "in HTML": "<td>&quot;{}&quot;</td>",
    "encoded in a URL": "https://host/?next=%2Fcb%3Fk%3D{}%26n%3D1",
    "in a difference": "+  key: '{}'",
    "in an error of pytest": "E   AssertionError: {}",
    "in italics": "_{}_",
    "after an escape": "k\\x3d{}\\x26",
    "in an entity": "&amp;k={}&amp;n=1",
    "between spaces of no width": "\u200b{}\u200b",
    "at the end of a sentence": "use {}.",
}
NAMED = {
    "header": "Authorization: Bearer {}",
    "basic header": "authorization: Basic {}",
    "cookie": "Set-Cookie: sid={}; Path=/",
    "JSON field": '{{"password": "{}"}}',
    "JSON field with spaces": '{{ "client_secret" :  "{}" }}',
    "escaped JSON field": '{{\\"api_key\\": \\"{}\\"}}',
    "Python dict": "{{'accessJwt': '{}'}}",
    "YAML": "db_password: {}",
    "environment": "OPENAI_API_KEY={} python agent.py",
    "quoted environment": 'export AWS_SECRET_ACCESS_KEY="{}"',
    "option": "tool --api-key {} run",
    "option with equals": "tool --password={} run",
    "option in a list": '["tool", "--token", "{}"]',
    "connection string": "postgres://user:{}@host:5432/db",
    "query": "https://host/v1?api_key={}&n=1",
    "short query": "https://host/v1?key={}",
    "signed URL": "https://bucket/key?X-Amz-Date=1&X-Amz-Signature={}00&x=1",
    "shared access": "https://x.blob.core.windows.net/c?sv=1&sig={}%3D",
    "account key": "AccountName=shop;AccountKey={};EndpointSuffix=core.windows.net",
    "shared key": "Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey={}=",
    "subscription": "Ocp-Apim-Subscription-Key: {}",
    "cookies of a list": '{{"set-cookie": ["sid={}; Path=/"]}}',
    "digest": 'Authorization: Digest username="u", password="{}"',
    "user of curl": "curl -u 'admin:{}' https://host",
    "option of curl": "curl --user admin:{} https://host",
    "header of curl": "curl -H 'Authorization: token {}' https://host",
    "option of mysql": "mysql -uroot -p{} shop",
    "option of sshpass": "sshpass -p {} ssh host",
    "option of docker": "docker login -u me -p {} registry",
    "token in a URL": "https://{}0123456789@github.com/o/r.git",
    "password with an at": "postgres://user:a@{}@host/db",
    "no user": "redis://:{}@host:6379/0",
    ".npmrc": "//registry.example/:_authToken={}",
    ".npmrc before": "_auth={}=",
    ".netrc": "machine host login me password {}",
    "kubeconfig": "    client-key-data: {}",
    "token in YAML": "    token: {}0123456789",
    "docker's own": '{{"auths": {{"x": {{"auth": "{}=="}}}}}}',
    "block of YAML": "password: |\n  {}\nuser: me",
    "folded block": "  api_key: >-\n    {}\n",
    "escaped block": '{{"content": "password: |\\n  {}\\n"}}',
    "element": "<password>{}</password>",
    "attribute": '<user password="{}"/>',
    "arrow": "'password' => '{}'",
    "Go": 'password := "{}"',
    "camel case": '{{"sessionToken": "{}"}}',
    "Discord": "https://discord.com/api/webhooks/123456789012345678/{}0123456789",
    "Slack": "https://hooks.slack.com/workflows/T0/A0/1/{}",
    "Teams": "https://x.webhook.office.com/webhookb2/{}",
    "JSON in a query": "?data=%7B%22password%22%3A%22{}%22%7D",
    "cookies": "Cookie: theme=dark; sessionid={}",
    "cookie in a line": "response had Set-Cookie: sid={}; HttpOnly",
    "cookie alone": "PHPSESSID={}",
    "name and value": '{{"name": "API_TOKEN", "value": "{}"}}',
    "value and name": '{{"value": "{}", "name": "API_TOKEN"}}',
    "key and value": "{{'key': 'DB_PASSWORD', 'value': '{}'}}",
    "name and value with a type": '{{"name": "DB_PASSWORD", "type": "text", "value": "{}"}}',
    "environment of Kubernetes": "- name: DB_PASSWORD\n  value: {}\n",
    "element of NuGet": '<add key="ApiKey" value="{}" />',
    "property list": "<key>password</key>\n<string>{}</string>",
    "element with an attribute": '<wsse:Password Type="x">{}</wsse:Password>',
    "part of a form": 'form-data; name="password"\r\n\r\n{}\r\n--b',
    "define": "define('DB_PASSWORD', '{}');",
    "setenv": 'monkeypatch.setenv("OPENAI_API_KEY", "{}")',
    "environ": "os.environ['OPENAI_API_KEY'] = '{}'",
    "pair": '[("x-api-key", "{}")]',
    "pair of a header": '["authorization", "Bearer {}"]',
    "quoted prose": "the password is '{}'",
    "password in prose": "log in with password {} please",
    "quoted password in prose": "password '{}'",
    "curly quotes": "access token “{}”",
    "arrow in prose": "API key → {}",
    "bold": "**Password:** {}",
    "code in prose": "the token: `{}`",
    "table": "| API_KEY | `{}` |",
    "quoted line": "> password: {}",
    "quoted variable": "> API_KEY={}",
    "comment": "#   password: {}",
    "comment of C": "// token = {}",
    "difference": "+DB_PASSWORD={}",
    "result of grep": "conf/app.env:12:API_KEY={}",
    "prompt": "$ export API_KEY={}",
    "middle of a line": "connecting with passwd={} now",
    "header in a line": "got X-Auth-Token: {} from the client",
    "log": "level=info token={} user=ada",
    "line of pytest": "E   ValueError: password={}",
    "fragment": "https://host/cb#access_token={}&n=1",
    "encoded query": "https://host/?next=%2Fcb%3Faccess_token%3D{}%26n%3D1",
    "encoded twice": "next%253Dcb%253Fpassword%253D{}",
    "ini": "[db]\npassword = {}\n",
    "flow of YAML": "{{user: ada, password: {}}}",
    "PowerShell": '$env:API_KEY = "{}"',
    "setx": "setx API_KEY {}",
    "quoted option": "tool --password '{}' run",
    "redis": "redis-cli -a {} ping",
    "openssl": "openssl rsa -passin pass:{}",
    "words of psql": 'psql "host=h user=a password={} dbname=x"',
    "bot of Telegram": "https://api.telegram.org/bot123456789:{}/send",
    "SQL": "CREATE USER a WITH PASSWORD '{}';",
    "SQL of MySQL": "CREATE USER a IDENTIFIED BY '{}';",
    "Rust": 'let api_key: &str = "{}";',
    "Kotlin": 'val secretKey: String = "{}"',
    "template of JavaScript": "const token = `{}`;",
    "Terraform": 'variable "db_password" {{\n  default = "{}"\n}}',
    "SecretStr": "SecretStr('{}')",
    "JSON in HTML": "{{&quot;password&quot;:&quot;{}&quot;}}",
    "protocol of a WebSocket": "Sec-WebSocket-Protocol: openai-insecure-api-key.{}",
    "WireGuard": "PresharedKey = {}=",
    "mask of a workflow": "::add-mask::{}",
    "LDAP": "bindpw {}",
    ".pgpass": "db.example.com:5432:shop:ada:{}",
    "login to Azure": "az login --service-principal -u x -p {} --tenant y",
    "parameter of AWS": "aws ssm put-parameter --value {} --type SecureString",
    "password for docker": "echo {} | docker login -u ada --password-stdin",
    "password for sudo": "echo '{}' | sudo -S ls",
    "value of helm": "helm upgrade shop . --set image=a,auth.password={}",
    "literal of kubectl": "kubectl create secret generic db --from-literal=password={}",
    "line of a log": "user=ada token={} ip=10.0.0.1",
    "list of keys": '{{"apiKeys": ["{}"]}}',
    "instruction of a Dockerfile": "ENV API_KEY {}",
    "fish": "set -gx API_KEY {}",
    "Makefile": "API_KEY ?= {}",
    "printf": "printf 'API_KEY=%s' {}",
    "option of curl with equals": "curl --user=ada:{} https://host",
    "cookie of curl": 'curl -b "session={}" https://host',
    "option of keytool": "keytool -storepass {} -list",
    "option of unzip": "unzip -P {} a.zip",
    "option of 7z": "7z x -p{} a.7z",
    "argument of htpasswd": "htpasswd -b users ada {}",
    "configuration of redis": "requirepass {}",
    "body of gh": 'gh secret set API_KEY -b "{}"',
    "key of Laravel": "APP_KEY=base64:{}",
    "Lua": "password = [[{}]]",
    "JSON of Terraform": '{{"db_password": {{"value": "{}"}}}}',
    "CDATA": "<password><![CDATA[{}]]></password>",
    "cells of HTML": "<tr><td>password</td><td>{}</td></tr>",
    "meta element": '<meta name="csrf-token" content="{}">',
    "CSV": "name,password,role\nada,{},admin\n",
    "CSV with quotes": '"name","password"\n"ada","{}"\n',
    "TSV": "name\tpassword\nada\t{}\n",
    "table with a head": "| user | password |\n|---|---|\n| ada | {} |",
    "color of a name": "\x1b[36mpassword\x1b[0m: \x1b[33m{}\x1b[0m",
    "color of a variable": "\x1b[36mAPI_KEY\x1b[0m={}",
    "color of JSON": '\x1b[34;1m"password"\x1b[0m: \x1b[32m"{}"\x1b[0m',
    "escaped quotes": "\\u0022password\\u0022: \\u0022{}\\u0022",
    "hexadecimal quotes": "\\x22password\\x22: \\x22{}\\x22",
    "assertion": "assert password == '{}'",
    "assertion of unittest": "self.assertEqual(api_key, '{}')",
    "pair of a login": "auth=('ada', '{}')",
    "basic authentication": "HTTPBasicAuth('ada', '{}')",
    "login to a mail server": "smtp.login('ada', '{}')",
    "password of MySQL": "SET PASSWORD FOR 'ada' = '{}'",
    "change of a password": "the password was set to {}",
    "dash": "API key - {}",
    "prompt for a person": "Password for ada: {}",
    "end of a sentence": "the API key is {}.",
    "form in pytest": 'E  form-data; name="password"\nE  \nE  {}\nE  --x',
    "form in a test in pytest": 'E   E  form-data; name="password"\nE   E\nE   E  {}\nE   E  --x',
    "block in pytest": "E   password: |\nE     {}\nE   port: 1",
}


QUOTED_ONCE = (
    'client = OpenAI(api_key="{}")',
    '{{"token": "{}"}}',
    '{{"jwt": "{}"}}',
    'Digest username="u", response="0123456789abcdef0123456789abcdef", password="{}"',
)


@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
def test_a_key_is_found_by_its_format_in_every_context(key: str):
    shown = {name: hide_secrets(context.format(key)) for name, context in CONTEXTS.items()}
    assert [name for name, text in shown.items() if key in text or MASK not in text] == []


@pytest.mark.parametrize("context", NAMED.values(), ids=list(NAMED))
def test_a_secret_is_found_by_the_name_in_front_of_it(context: str):
    hidden = hide_secrets(context.format("hunter2butlonger"))
    assert "hunter2" not in hidden
    assert MASK in hidden


# Values without a digit, or with one by chance: nothing but their letters is unusual.
IN_PATHS = {  # they have letters and digits only
    *("token in a URL", "bot of Telegram", "Teams", "Discord", "signed URL"),
    "password with an at",
}
RANDOM = ("[a:24]", "[s:20]", "[c:24]", "[w:16]", "[l:24]", "[h:32]", "[b:22]==", "[w:8][p:1][d:3]")


@pytest.mark.parametrize("pattern", RANDOM)
def test_a_random_value_is_found_by_the_name_in_front_of_it(pattern: str):
    chance = Random(pattern)  # noqa: S311 - a test
    values = {name: draw(pattern, chance) for name in NAMED if name not in IN_PATHS}
    shown = {name: hide_secrets(NAMED[name].format(value)) for name, value in values.items()}
    assert [text for name, text in shown.items() if values[name] in text] == []


@pytest.mark.parametrize("seed", range(2, 5))
def test_every_planted_secret_is_found(seed: int):
    planted = [each for group in CHANNELS for each in plant(group, seed)]
    shown = [hide_secrets(each.text) for each in planted]
    found = zip(planted, shown, strict=True)
    assert [text for each, text in found if any(s in text for s in each.spellings)] == []
    assert len(shown) == 1200


@pytest.mark.parametrize("context", [*NAMED.values(), *QUOTED_ONCE], ids=str)
def test_a_secret_is_found_in_json_nested_in_json(context: str):
    text = f"first\n{context.format('hunter2butlonger')}\nlast"
    for _ in range(3):
        text = msgspec.json.encode({"arguments": text, "n": 1}).decode()
        hidden = hide_secrets(text)
        assert "hunter2" not in hidden
        assert msgspec.json.decode(hidden)["n"] == 1


def test_a_private_key_is_hidden_completely_even_if_it_is_cut_off():
    block = "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\ndef\n"
    assert hide_secrets(f"{block}-----END RSA PRIVATE KEY-----\nrest") == f"{MASK}\nrest"
    assert hide_secrets(block) == MASK


BODY = "\n".join(f"{LETTERS}{LETTERS}{number:012d}" for number in range(4))
PUTTY = f"PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 4\n{BODY}\nPrivate-MAC: {HEX}"
SSH2 = "SSH2 ENCRYPTED PRIVATE KEY"
BLOCKS = {
    **{
        kind: f"-----BEGIN {kind}-----\n{BODY}\n-----END {kind}-----"
        for kind in ("RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK")
    },
    "encrypted": "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n"
    f"DEK-Info: AES-128-CBC,{HEX.upper()}\n\n{BODY}\n-----END RSA PRIVATE KEY-----",
    "SSH2": f'---- BEGIN {SSH2} ----\nComment: "x"\n{BODY}\n---- END {SSH2} ----',
    "PuTTY": PUTTY,
}
LINE_PREFIXES = ("", "> ", "E       ", "    ", "# ", "+", " * ", " 12 | ", "   12\t", "  12→")


@pytest.mark.parametrize("prefix", LINE_PREFIXES)
@pytest.mark.parametrize("block", BLOCKS.values(), ids=list(BLOCKS))
def test_a_private_key_is_hidden_whatever_is_before_its_lines(block: str, prefix: str):
    text = "\n".join(prefix + line for line in block.splitlines())
    for shown in (hide_secrets(text), hide_secrets(msgspec.json.encode({"a": text}).decode())):
        assert LETTERS not in shown


@pytest.mark.parametrize(
    "members",
    [
        {"kty": "EC", "crv": "P-256", "x": LETTERS, "d": LETTERS[::-1]},
        {"kty": "RSA", "e": "AQAB", "dp": LETTERS[::-1], "q": LETTERS[::-1]},
        {"k": LETTERS[::-1], "kty": "oct"},
    ],
    ids=["EC", "RSA", "oct"],
)
def test_the_private_members_of_a_json_web_key_are_hidden(members: dict[str, str]):
    text = msgspec.json.encode(members).decode()
    for shown in (text, msgspec.json.encode({"arguments": text}).decode(), quote(text, safe="")):
        assert LETTERS[::-1] not in hide_secrets(shown)


def test_the_same_is_hidden_after_many_bytes(monkeypatch: pytest.MonkeyPatch):
    text = "\n".join(f"{key} token={LETTERS} pass" for key in KEYS.values())
    monkeypatch.setattr("offbook.secrets._searched", 0)
    first = hide_secrets(text)
    monkeypatch.setattr("offbook.secrets.MANY_BYTES", 0)
    assert first == hide_secrets(text) != text


def test_every_pattern_is_valid():
    patterns = [*(key for _, key, *_ in KEY_FORMATS), *PLACES.values(), *LOOSE_PLACES.values()]
    assert all(map(re.compile, patterns))  # the error shows the pattern


def test_every_format_of_a_key_has_a_source():
    assert all(source for _, _, source, *_ in KEY_FORMATS)
    assert len({pattern for _, pattern, *_ in KEY_FORMATS}) > 60


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 4096, tokens: 2500",
        '{"token": "Hello", "logprob": -0.1}',
        "a basic understanding of bearer bonds",
        "the keyboard shortcut is ctrl-k",
        "https://host/path?page=2",
        "sk-ip this",
        "password",
        "desk-top computers, task-driven",
        f"{MASK} stays {MASK}",
        "risk-assessment-report.md, task-management-system, disk-encryption-setup.sh",
        "commit 4f2a9c1e8b7d6a5f4e3d2c1b0a9f8e7d6c5b4a39",
        "550e8400-e29b-41d4-a716-446655440000",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "https://host/rates?key=name&code=US, https://host/errors?code=NOT_FOUND",
        "the bearer token-based way, bearer authentication.",
        '{"next_page_token": "CAUQAA", "eos_token": "<|endoftext|>"}',
        "docker run -u 1000:1000 image",
        "git clone https://git@github.com/o/r.git",
    ],
)
def test_ordinary_text_is_not_changed(text: str):
    assert hide_secrets(text) == text


@pytest.mark.parametrize(
    "code",
    [
        "def login(user: str, password: str) -> bool:",
        "def login(*, password: SecretStr | None = None, api_key: Optional[str] = None):",
        "token = get_token()",
        "token = tok",
        'api_key = os.environ["OPENAI_API_KEY"]',
        "client = OpenAI(api_key=api_key)",
        "client = OpenAI(api_key=credential, timeout=5)",
        "self.password = password",
        "const token = await getToken();",
        "password: process.env.DB_PASSWORD,",
        "DB_PASSWORD=${DB_PASSWORD} DB_SECRET=$SECRET",
        "password: ${{ secrets.DB_PASSWORD }}",
        "password: {{ password }}",
        "headers: { Authorization: `Bearer ${token}` }",
        'headers = {"Authorization": f"Bearer {token}"}',
        'url = f"postgres://{user}:{password}@{host}/db"',
        "DATABASE_URL=postgres://me:${PASSWORD}@host/db",
        "password: Mapped[str] = mapped_column(String(60))",
        "client_secret: ClientSecret",
        "credentials: HTTPAuthorizationCredentials = Depends(security)",
        "authorization: Optional[str] = None",
        "interface Login { password: string; apiKey?: string }",
        "if password == other or token != given: raise",
        "String password = request.getParameter(name);",
        "class Secret: pass",
        '"password": {"type": "string", "format": "password"}, "required": ["password"]',
        '{"password": "string", "api_key": "<your key>"}',
        'OPENAI_API_KEY="..." python agent.py',
    ],
)
def test_code_that_handles_secrets_is_not_changed(code: str):
    assert hide_secrets(code) == code
    escaped = msgspec.json.encode({"content": f"first\n{code}\nlast"})
    assert hide_bytes(escaped) == escaped


@given(st.text())
def test_hiding_is_idempotent(text: str):
    once = hide_secrets(text)
    assert hide_secrets(once) == once


@given(
    st.sampled_from(sorted(KEYS.values())),
    st.text(
        st.characters(exclude_categories=["Cs", "L", "N"], exclude_characters="_-"), max_size=9
    ),
)
def test_a_key_between_any_punctuation_is_hidden(key: str, punctuation: str):
    assert key not in hide_secrets(f"{punctuation}{key}{punctuation}")


@given(st.dictionaries(st.sampled_from(["a", "password", "n"]), st.text(max_size=20)))
def test_hidden_json_is_still_json(value: dict[str, str]):
    raw = msgspec.json.encode(value)
    read = msgspec.json.decode(hide_bytes(raw))
    assert set(read) == set(value)


NEXT_LINE = ["Password:\n{}", "new token:\r\n{}\nBye", "API key =\t{}", "pwd => \n\n{}"]


@pytest.mark.parametrize("pattern", NEXT_LINE)
def test_a_value_in_the_next_line_is_hidden_in_a_text_and_in_json(pattern: str):
    text, masked = pattern.format("hunter2Xy9!"), pattern.format(MASK)
    raw = msgspec.json.encode({"text": text})
    assert hide_secrets(text) == masked
    assert msgspec.json.decode(hide_bytes(raw)) == {"text": masked}
    assert hide_lines(raw + b"\n") == hide_bytes(raw) + b"\n"


@pytest.mark.parametrize(
    "raw, known, expected",
    [
        (rb'["\n1234567"]', b"n1234567", b'["[API_KEY]"]'),
        (rb'["\u00e9abcdef"]', b"e9abcdef", b'["[API_KEY]"]'),
        (rb'["abcdefg\u00e9"]', rb"abcdefg\u00", b'["[API_KEY]"]'),
        ('["abcdefgé"]'.encode(), b"abcdefg\xc3", b'["[API_KEY]"]'),
        (b'["horse","bat"]', b'horse","bat', b'["[API_KEY]","[API_KEY]"]'),
        (b'{"a":"horse","b":"bat"}', b'horse","b":"b', b'{"a":"[API_KEY]","b":"[API_KEY]at"}'),
        (b'{"pin":12345678}', b"12345678", b'{"pin":"[API_KEY]"}'),
        (b'{"ts":112345678}', b"12345678", b'{"ts":112345678}'),
        (b'{"horsebat": 1}', b"horsebat", b'{"[API_KEY]": 1}'),
    ],
    ids=["escape", "code", "open code", "character", "values", "key", "number", "part", "in key"],
)
def test_a_mask_in_json_breaks_nothing(raw: bytes, known: bytes, expected: bytes):
    assert hide_bytes(raw, [known]) == expected


def blank_texts(value: Any) -> Any:
    """Return a JSON value with all its texts blanked."""
    if isinstance(value, dict):
        return [blank_texts(item) for item in cast("dict[str, Any]", value).values()]
    if isinstance(value, list):
        return [blank_texts(item) for item in cast("list[Any]", value)]
    return "" if isinstance(value, str) else value


SECRET_PIECES = st.sampled_from(
    (
        *("password", "token", "Authorization", "Cookie", "--token", "value", "kty", "PRIVATE KEY"),
        *("hunter2Xy9!", "Zx81kQp0Lm29vB", "sk-proj-Ab3dEf6hIj9kLm2nAb3dEf6hIj9", "12345678"),
        *(": ", "=", "\n", "\t", '"', "'", "\\", "\\n", " ", ",", "|", "<", ">", "</", "`", "=>"),
        *("&quot;", "%22", "\xa0", "\x1b[31m", "\u200b", "\\u0022", "\\x22", "é", "→", "“"),
    )
)
JSON_TEXTS = st.lists(SECRET_PIECES, max_size=12).map("".join)
JSON_VALUES = st.recursive(
    JSON_TEXTS | st.sampled_from([1, None, True]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(JSON_TEXTS, inner, max_size=3)
        | inner.map(json.dumps)
    ),
    max_leaves=8,
)


@given(JSON_VALUES)
@example({"password:\nhunter2Xy9!": ["password:\thunter2Xy9!"]})
@example('<password>hunter2Xy9!","b":"</password>')
def test_a_masked_line_of_json_has_the_same_shape(value: Any):
    raw = msgspec.json.encode({"event": "x", "data": value})
    hidden = hide_bytes(raw)
    assert blank_texts(msgspec.json.decode(hidden)) == blank_texts(msgspec.json.decode(raw))
    assert hide_lines(raw + b"\n") == hidden + b"\n"


LINE_PARTS = st.sampled_from(
    ["password: hunter2Xy9!", "password:\xa0hunter2Xy9!", "a\xa0b", "\r", " "]
)


@given(st.lists(st.lists(LINE_PARTS, max_size=4).map("".join), min_size=1, max_size=4))
@example(["\rpassword:\xa0hunter2Xy9! password: hunter2Xy9!"])
def test_lines_are_masked_as_each_of_them_is(lines: list[str]):
    raw = [line.encode() for line in lines]
    hidden = [hide_bytes(line) for line in raw]
    assert hide_lines(b"\n".join([*raw, b""])) == b"\n".join([*hidden, b""])


class CountedBytes(bytes):
    """Lines that count how often a part of them is copied."""

    copies = 0

    def __getitem__(self, part: Any) -> Any:
        self.copies += 1
        return super().__getitem__(cast("slice", part))


def test_a_line_is_copied_once_whatever_number_of_names_it_has():
    lines = CountedBytes(b'{"password":1,"token":2}\n' + b'{"password":1}' * 1000 + b"\n")
    assert hide_lines(lines) == lines
    assert lines.copies == 2


PEM = "-----BEGIN PRIVATE KEY-----\nMIIab{}"
SECRETS = st.sampled_from([*KEYS.values(), *(n.format(LETTERS) for n in NAMED.values()), PEM])


@given(st.lists(SECRETS | st.sampled_from(["\n", '"', "'", "\\", "{", "é", " and "]), max_size=9))
def test_nested_json_stays_valid_json(parts: list[str]):
    text = "".join(parts)
    inner = msgspec.json.encode({"said": text, "more": 1}).decode()
    value = {"arguments": msgspec.json.encode({"deep": inner}).decode(), "text": text, "end": [1]}
    hidden = hide_bytes(msgspec.json.encode(value))
    read = msgspec.json.decode(hidden)
    assert (set(read), read["end"]) == ({"arguments", "text", "end"}, [1])
    deep = msgspec.json.decode(msgspec.json.decode(read["arguments"])["deep"])
    assert deep["more"] == 1


def test_the_working_folder_is_not_a_password():
    assert known_secrets({"PWD": "/home/me", "OLDPWD": "/home/other"}) == ()


def test_known_secrets_are_hidden_in_every_encoding():
    assert known_secrets({"PWD": "/home/me", "OLDPWD": "/home/me/other"}) == ()
    known = known_secrets({"MY_TOKEN": "plain-looking-word", "HOME": "/home/me"})
    encoded = base64.b64encode(b"plain-looking-word").decode()
    text = f"plain-looking-word {encoded} {b'plain-looking-word'.hex()} /home/me"
    hidden = hide_secrets(text, known)
    assert "plain-looking" not in hidden
    assert encoded.rstrip("=") not in hidden
    assert "/home/me" in hidden


def test_a_variable_that_is_set_or_changed_later_is_known(monkeypatch: pytest.MonkeyPatch):
    assert "plain-looking-word" not in known_secrets()
    monkeypatch.setenv("MY_TOKEN", "plain-looking-word")
    assert "plain-looking-word" in known_secrets()
    monkeypatch.setenv("MY_TOKEN", "another-plain-word")
    assert {"plain-looking-word", "another-plain-word"} & {*known_secrets()} == {
        "another-plain-word"
    }
    monkeypatch.delenv("MY_TOKEN")
    assert "another-plain-word" not in known_secrets()
    monkeypatch.setattr("os.environ", {"MY_TOKEN": "plain-looking-word"})
    assert "plain-looking-word" in known_secrets()


@pytest.mark.parametrize("name", ["PW", "DB_PW", "DB_PASS", "SHOP_PASSWORD", "MY_TOKEN"])
def test_a_value_of_the_environment_is_hidden_url_encoded(name: str):
    known = known_secrets({name: "päss/word &+ more"})
    for encoded in (quote("päss/word &+ more", safe=""), quote_plus("päss/word &+ more")):
        assert hide_secrets(f"a={encoded}&b=1", known) == f"a={MASK}&b=1"
        assert hide_secrets(f"a={encoded.lower()}&b=1", known) == f"a={MASK}&b=1"


@pytest.mark.parametrize(
    "name, secret",
    [
        ("OPENAI_API_KEY", True),
        ("GITHUB_TOKEN", True),
        ("db_password", True),
        ("Authorization", True),
        ("x-api-key", True),
        ("accessJwt", True),
        ("max_tokens", False),
        ("HOME", False),
        ("keyboard", False),
        # separators: each spelling of a name, and none between the letters of its words
        *(("MY-PRE-SHARED_KEY", True), ("preshared-key", True), ("clientkeydata", True)),
        *(("app_key", True), ("appkey", False), ("webhook-url", True), ("webhookurl", False)),
        ("a_pi_key", False),
        # at the end, or the whole
        *(("token_type", False), ("token", True), ("mytoken", False), ("next_token", False)),
        *(("NEXT-TOKEN", False), ("my_next_page-token", False), ("pw", True), ("view_pw", True)),
        *(("cpw", False), ("oauth", False), ("ssh_auth", True), ("auth_sock", False)),
        *(("session_cookie", True), ("cookies", False), ("ends_token\n", True)),
        # anywhere between separators
        *(("the-secret-of", True), ("secretary", False), ("API_KEY_NAME", True)),
        # letters that have another case in Unicode only
        *(("to\N{KELVIN SIGN}en", True), ("pa\N{LATIN SMALL LETTER LONG S}sword", True)),
    ],
)
def test_fields_are_known_by_their_names(name: str, secret: bool):  # noqa: FBT001 - a column of the table
    assert is_secret_name(name) is secret


SPELT = "pä\"ss'wörd<4711>~~~?"
SPELLINGS = {
    "base64url": base64.urlsafe_b64encode(SPELT.encode()).decode().rstrip("="),
    "JSON in ASCII": json.dumps(SPELT)[1:-1],
    "JSON in JSON in ASCII": json.dumps(json.dumps(SPELT))[3:-3],
    "HTML": html.escape(SPELT),
    "HTML without quotes": html.escape(SPELT, quote=False),
    "bytes": repr(SPELT.encode())[2:-1],
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_a_known_secret_is_hidden_escaped(spelling: str):
    hidden = hide_secrets(f"<{spelling}>", known_secrets({"MY_TOKEN": SPELT}))
    assert hidden in {f"<{MASK}>", f"<{MASK}{spelling[-1]}>"}  # base64 shares its last character


@pytest.mark.parametrize("text", ["%3Ftoken%3D{}", "a%26token%3D{}", "%3Fpwd%3D{}", "%3fpw%3d{}"])
def test_a_short_name_is_found_after_an_escape_of_a_url(text: str):
    assert hide_secrets(text.format("Zx81kQp0Lm29vB77aQ")) == text.format(MASK)


@pytest.mark.parametrize("length", range(26, 62, 5))
def test_a_text_is_cut_before_a_secret(length: int):
    text = f"a {KEYS['openai']} {KEYS['github']} z"
    cut = cut_text(text, length)
    assert len(cut) <= length
    assert text.startswith(cut)
    assert LETTERS[:8] not in hide_secrets(cut)


def test_a_secret_is_hidden_in_all_parts_of_a_text():
    parts = [b"the key is sk-pr", b"oj-aB3dE5gH7jK9mN1p", b"Q3sT5vW7yZ and ", b"more"]
    assert hide_parts(parts, (), b"-") == [b"the key is -", b"-", b"- and ", b"more"]


@pytest.mark.parametrize("length", range(1, 57))
def test_a_text_is_masked_before_it_is_cut(length: int):
    key = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ0123456789"
    whole = "the key [API_KEY] is wrong"
    shown = excerpt(whole.replace(MASK, key), length)
    assert shown == (whole if len(whole) <= length else f"{whole[: length - 1]}…")
    assert ending(whole.replace(MASK, key), length) == whole[-length:]


def test_a_text_that_leaves_cannot_control_a_terminal():
    assert outgoing("a\x1b[2Jb\x9b\u202ec\td\n") == "a␛[2Jb\ufffd\ufffdc\td\n"


@pytest.mark.parametrize(
    "code",
    [*range(9), 0x0B, 0x1B, 0x7F, 0x9B, 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), 0x2067],
)
def test_no_control_or_bidi_character_leaves(code: int):
    assert chr(code) not in outgoing(f"a{chr(code)}b")


def test_the_secrets_of_a_text_are_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHOP_PASSWORD", "correct horse")
    key = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ0123456789"
    assert {*find_secrets(f"correct horse, {key}")} == {"correct horse", key}


@pytest.mark.parametrize(
    "key", ["Jaje2Y1Jp8BbCdxaJQaPwdAUBo48aB", "i2MefKpjHj6XygEJwtXo09EiT148aB"]
)
def test_a_key_that_contains_the_name_of_a_secret_by_chance_is_hidden(key: str):
    assert key not in hide_secrets(f"The password is {key}")


@pytest.mark.parametrize("password", ["hunter2", "Summer2026", "P@ssw0rd", "s3cr3t"])
@pytest.mark.parametrize(
    "text",
    [
        "helm upgrade shop . --set auth.password={} --wait",
        "kubectl create secret generic db --from-literal=password={}",
        "2026-11-18 INFO login user=ada password={} ip=10.0.0.1",
    ],
)
def test_a_simple_password_is_found_where_no_code_can_be(text: str, password: str):
    assert hide_secrets(text.format(password)) == text.format("[API_KEY]")
