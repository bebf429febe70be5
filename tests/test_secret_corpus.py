"""Redaction and real source files: programs stay programs."""

from __future__ import annotations

import ast
import sysconfig
import warnings
from pathlib import Path

import msgspec
import pytest

from offbook.secrets import hide_bytes, hide_secrets
from tests.thorough import THOROUGH

SITE_PACKAGES = Path(sysconfig.get_path("purelib"))


def without_texts(code: str) -> str:
    """Return the syntax tree of a program with all its texts blanked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's code
        tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            node.value = ""
    return ast.dump(tree)


@pytest.mark.slow
def test_redaction_changes_only_texts_and_comments_of_the_installed_packages():
    changed: list[str] = []
    files = sorted(SITE_PACKAGES.rglob("*.py"))[:: 1 if THOROUGH else 4]
    for path in files:
        raw = path.read_bytes()
        hidden = hide_bytes(raw)
        try:
            code = raw.decode()
            # a cassette stores a program as JSON: escaped, it is redacted in the same way
            escaped = hide_bytes(msgspec.json.encode(code))
            assert msgspec.json.decode(escaped) == hidden.decode(), path
        except UnicodeDecodeError:  # a test file of another encoding
            assert hidden == raw, path
            continue
        if hidden != raw:
            changed.append(str(path.relative_to(SITE_PACKAGES)))
            assert without_texts(hidden.decode()) == without_texts(code), path
    assert len(files) > 1000
    # Examples of keys and passwords in docstrings; more would be words that are no secrets.
    assert len(changed) < len(files) / 1000, changed


@pytest.mark.parametrize(
    "code",
    [
        'password = getpass.getpass("Password: ")\nlogin("ada", password)\n',
        'password = getpass.getpass("Password: "); login("ada", password)\n',
        "def mark_test_complete(node): ...\n",
        "def set_cookie(self, cookie: Cookie, *args): ...\n",
        'ENV_API_KEY = "ANTHROPIC_API_KEY"\n',
        'headers = {"Authorization": "\\\n" "Bearer " + token}\n',
        "has_sufficient_auth = (self.project and self.location) or self.api_key\n",
        'print(f"password={password!r}")\n',
        "api_key: NotRequired[str | Callable[[], str]]\n",
        '_START = b"-----BEGIN OPENSSH PRIVATE KEY-----"\n_END = b"-----END"\n',
        "connect(credentials=s3_credentials or None, private_key=Ed25519PrivateKey)\n",
        'client = Client(api_key="test-api-key", token="fake_access_token")\n',
        'url = "postgres://user:password@localhost/db"\n',
        'KIND = "sk-ecdsa-sha2-nistp256@openssh.com"\n',
    ],
)
def test_code_about_secrets_is_the_same_after_redaction(code: str):
    assert hide_secrets(code) == code
    assert msgspec.json.decode(hide_bytes(msgspec.json.encode(code))) == code


INNOCENT = """\
task-0198c3b2f7a27c3f8d3e
disk-0198c3b2f7a27c3f8d3e is full
pwd: /home/ada/x
PWD=/home/ada/project2
OLDPWD=/srv/app-2
cookie: Cookie, *args
ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
sk-...
OPENAI_API_KEY=your-api-key
OPENAI_API_KEY=$OPENAI_API_KEY
export API_KEY="<your key>"
password: str
password: SecretStr
token: UUID
token: contextvars.Token
api_key: optional
password must have 8 characters
The password is wrong
The password is required
The token is invalid
the api key is missing
your token is expired since 2024-01-01
--password PASSWORD
--token TOKEN_FILE
--api-key is required
pass: 12 of 14
tests pass: yes
3 passed, 2 failed
max_tokens: 4096
max_tokens=16384
"next_page_token": "CAUQAA12345"
eos_token: 151643
{"token": "Hello", "logprob": -0.25}
{"token": "é2"}
Token: '#d0d0d0'
tokenizer=cl100k_base
author: ada99
authority=example.com:8443
Authorization: Bearer <token>
Authorization: Bearer ${TOKEN}
`Authorization: Bearer` headers
https://user@example.com/a:b@c
ssh://git@github.com/o/r2.git
git@github.com:o/r2.git
postgres://user:pass@localhost:5432/db
http://127.0.0.1:8080/v1?page=2&code=US
commit 4f2a9c1e8b7d6a5f4e3d2c1b0a9f8e7d6c5b4a39
sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
550e8400-e29b-41d4-a716-446655440000
call_aB3dE5gH7jK9mN1pQ3sT5vW7
toolu_01aB3dE5gH7jK9mN1pQ3sT5v
chatcmpl-9aB3dE5gH7jK9mN1pQ3sT5
docker run -u 1000:1000 image:v2
mysql -uroot -p shop
secretary: Ada2
passport: X1234567
compass: 270deg
key: value2
{"primary_key": "order_id2"}
SECRET_KEY = os.environ["SECRET_KEY_2"]
""".splitlines()


def test_there_are_sixty_innocent_texts():
    assert len(set(INNOCENT)) == 60


@pytest.mark.parametrize("text", INNOCENT)
def test_an_innocent_text_is_not_changed(text: str):
    assert hide_secrets(text) == text
    inside = f"first\n{text}\nlast"
    assert msgspec.json.decode(hide_bytes(msgspec.json.encode(inside))) == inside
