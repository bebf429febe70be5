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
for token in tokens: print(token.text2)
token2 = next_token(stream1)
password1 = forms.CharField(widget=PasswordInput2)
("auth", "0009_alter_user_last_name_max_length"),
["old_password", "new_password1", "new_password2"]
sensitive_post_parameters("oldpassword", "password", "password1", "password2")
"invalid_auth": "Invalid authentication in step 2"
"password": "Passwort"
"password": "Contrase\\u00f1a"
"api_key": "Clave API"
"password": "The password to decrypt the file"
"token": "[%key:common::config_flow::data::token%]"
admin_token = keystoneauth1.loading.admin_token:AdminToken
URL_CLIENTSECRET = "{url}/admin/realms/{realm}/clients/{id}/client-secret"
if update_password == "always1" or not have:
'--ask-vault-password', '--ask-vault-pass'
parser.add_argument("--password", "-p2", help="the password")
{'X-Auth-Token': self.TEST_TOKEN}, s.get_auth_headers()
STATUS_NO_AUTHORIZATION = 0xC00D11D0
SECRET = 0b0000100
token = _XRegExp$exec2[0];
LOG.debug(f'LsaSecretKey: 0x{hexlify(self.key1).decode()}')
Created Private Key: "/etc/pki/certs/replica_no.1.key"
approval decisions identified by `required_input2`.
get the value from the file identified by 'entry'
"passphrase": "string?"
"secret": "V1SecretProjection"
DATA_JWT_SECRET = "oauth2_jwt_secret"
"auth": "authentication_md5"
reuse_password: "enable"
password: sha256_crypt.hash
secret = hashlib.sha256(data1).hexdigest()
token: Base64Str
auth = HTTPBasicAuth(user1, pass1)
api_key=settings.api_key2
credentials=s3_credentials
client_secret=oauth2_client.secret
password=password1)
password: {{ vault_password2 }}
password: !vault |
password: $ANSIBLE_VAULT2
PASSWORD=$(cat /run/secrets/db2)
TOKEN=`cat token2.txt`
export TOKEN="$(gh auth token)"
PGPASSWORD=$PGPASSWORD psql -h db1
--password-file /run/secrets/db2
--token-ttl 3600s
token_ttl: 3600s
password_min_length: 12
auth_timeout = 30s
secret_version: 7
api_key_id: 12
token count: 1042
Tokens used: 1,042 in 3.2s
tokens per second: 42.5
the token 12345 is a number
the password field has id login2
a secret of 32 bytes
the secret is 32 bytes long
the API key is read from config.py
The API key was created on 2024-01-01
the password was changed 3 days ago
Your password expires in 14 days.
password: at least 8 characters
Password must contain 1 digit
password reset link sent to ada2@example.com
Enter your password to continue
api key required (see docs/auth2.md)
key: value1
public_key: ssh-ed25519
AUTH_TYPE=oauth2
AUTH_METHOD=sha256
AUTHOR=ada2
SECRETS_DIR=/run/secrets2
PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
TOKENIZER=cl100k_base
cookie: sameSite=lax
Set-Cookie: theme=dark; Path=/
Cookie: lang=en; theme=dark2
document.cookie = "theme=dark"
{"name": "order_id", "value": "A-1234567890"}
{"name": "password", "value": "<your password>"}
{"name": "token", "type": "string", "required": true}
{"name": "api_key", "in": "header", "description": "The key of API 2"}
- name: DB_PASSWORD\n  valueFrom: secretKeyRef2
define('WP_DEBUG', 'true2');
("content-type", "application/json2")
os.environ.get("API_KEY", "default")
os.environ["API_KEY"] = api_key2
monkeypatch.setenv("HOME", "/home/ada2")
| API_KEY | the key of the service 2 |
| password | string | required |
<password></password>
<input type="password" name="password" id="login2">
<label for="password">Password 2</label>
-----BEGIN CERTIFICATE-----
-----BEGIN PUBLIC KEY-----
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ2 ada@host
"-----BEGIN RSA PRIVATE KEY-----"
{"kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"}
sk-learn version 1.5.0
sk_test_results_2024
hf_hub_download(repo_id2)
npm_config_registry=https://host2
npm_package_version2
gh_pages_branch_2
key_2024_01_01
secret_santa_2024
live_updates_2024
re_compile_pattern_2
pi_approximation_2
rnd_state_42
pat_match_2024
as-of-2024-01-01
pa-system-2024
fc-match2
xai-grok-2
gsk_helper_2
fw_update_2024
r8_texture_2
sess-2024-01-01
sm_pattern_2
api-2024-01-01
sdk-2.4.1
mob-rule-2
access-control-2
shp_reader_2
whsec_helper
dose2
dapi2
atbb2
oy2
s.rstrip2
t1.join2
dp.pt.array2
sl.slice2
hvs.map2
pat.compile2
ops_eyj2
rzp_live_docs
sq0csp-docs
1/2 cup of sugar: 100
0/1 knapsack: 42
2/3 of 1234: 822
$1$ and $2$
$5$ off
cost $6$ each
call_0198c3b2f7a27c3f8d3e1a2b
msg_01XFDUDYJgAACzvnptvVoYEL
resp_67ccd2bed1ec8190b14f964abc054267
req_011CQmKQeDyFCMwq8Uqjs6Ao
run_abc123def456ghi789
thread_abc123DEF456ghi
trace_id=4bf92f3577b34da6a3ce929d0e0e4736
session_id: 0198c3b2-f7a2-7c3f-8d3e-1a2b3c4d5e6f
"sessionId": "0198c3b2-f7a2-7c3f-8d3e-1a2b3c4d5e6f"
etag: "33a64df551425fcc55e4d42a148795d9f25f89d4"
integrity sha384-oqVuAfXRKap7fdgcCY5uykM6+R9GqQ8K/uxy9rx7HNQlGYl1kPzQho1wx4JwY8wC
data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk
AAAAB3NzaC1yc2EAAAADAQABAAABAQC7
0x1f98431c8ad98523631ae4a59f267346ea31f984
192.168.1.10:8080
2001:db8::8a2e:370:7334
v1.2.3-beta.4+build.5
2024-01-01T12:00:00.000Z
3f2504e0-4f89-11d3-9a0c-0305e82c3301
/usr/lib/python3.11/site-packages/httpx2
C:\\Users\\ada2\\password.txt
https://example.com/reset-password?step=2
https://example.com/tokens/2024
mailto:ada2@example.com
git@gitlab.com:group2/project3.git
ftp://anonymous@example.com/pub2
redis://localhost:6379/0
amqp://guest@localhost:5672
postgres://localhost:5432/shop2
mysql -h db1 -u root shop2
docker login ghcr.io -u ada2
curl -u ada2 https://example.com
redis-cli -h host1 ping
openssl rsa -in key2.pem
machine learning login 2
bearer of bad news 2
Bearer authentication 2.0
basic auth 2
OAuth 2.0 authorization code flow
JWT (RFC 7519)
the secret2 variable
let token = tokens[2];
const apiKey = process.env.API_KEY2;
val secretKey: String = config.secretKey2
let api_key: &str = args.key2;
password := os.Getenv("DB_PASSWORD2")
'password' => env('DB_PASSWORD2'),
:password => params[:password2]
CREATE TABLE users (password varchar(255))
ALTER ROLE ada PASSWORD NULL
UPDATE users SET password = :password2
SELECT token FROM sessions2
""".splitlines()


def test_there_are_two_hundred_innocent_texts():
    assert len(set(INNOCENT)) > 200


@pytest.mark.parametrize("text", INNOCENT)
def test_an_innocent_text_is_not_changed(text: str):
    inside = f"first\n{text}\nlast"
    assert hide_secrets(text) == text
    assert msgspec.json.decode(hide_bytes(msgspec.json.encode(inside))) == inside


def test_innocent_texts_next_to_each_other_are_not_changed():
    text = "\n".join(INNOCENT)
    assert hide_secrets(text) == text
