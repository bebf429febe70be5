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
connect(user,\n    password,\n    max_age=3600,\n    sqlite3_options,\n)
self.bindpw = bindpw
helm upgrade shop . --set auth.password=$PASSWORD,image.tag=v1.2.3
kubectl create secret generic db --from-literal=password="$DB_PASSWORD"
kubectl create configmap shop --from-literal=mode=production1
user=ada token=valid ip=10.0.0.1
token=$(cat token.txt) user=ada make deploy
password=args.password2 name=args.name
tokens=4096 token=12 cost=0.3
SECRET_KEY=change-me
"change_password": "5/m/user"
credentials.ISSHPrivateKey: b"publickey",
disk.blkid(token="TYPE=ext4")
"public.txt:secret", "public.txt%3Asecret",
arguments to pass to sftp/scp/ssh
    gm_private_key, gm_public_key,\n    bifid6, bifid10,
token == "function_name_2"
assertEqual(token, "identifier2")
ENV API_KEY $API_KEY
ENV PASSWORD_FILE /run/secrets/db2
name,token,count\nada,alpha,12
| token | meaning |\n|---|---|\n| id2 | a name |
\x22kind\x22: \x22version2\x22
&quot;kind&quot;: &quot;version2&quot;
_sk_ and _ghp_ are prefixes
smtp.login("ada", password2)
auth=(user2, password2)
git checkout -b feature=login2
token: InternationalizationSupport
credentials: ApplicationDefaultCredentials
authToken = WebhookPayloadUpdatedRef
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
token_count=1234567890
tokens_used: 12345678
password_field: str = "password"
password_field = "user_password_2"
def reset_password(token: str, uid: int = 7) -> None:
secret_santa = draw_names(people2)
api_key_header = APIKeyHeader(name="X-API-Key-2")
AUTH_BACKENDS = ["django.contrib.auth.backends.ModelBackend2"]
git checkout 3f2a9c1e8b7d6a5f4e3d2c1b0a9f8e7d6c5b4a39
Merge: 1a2b3c4 5d6e7f8
index 83db48f..bf269f4 100644
sha512-Z3Zl8x1kWPtjm3GzY1P0VwT9lK8e4mHq0yQv7nXrJ5cB2dF6gH9jK1mN3pQ5sT7uW9yA1cE3gI5kM7oQ9sU1w==
"integrity": "sha512-v2kDEe57lecTulaDIuNTPy3Ry4gLGJ6Z1O3vE1krgXZNrsQ+LFTGHVxVjcXPs17LhbZVGg=="
background: url(data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7)
color: #a1b2c3; border: 1px solid #ff00ff80
--primary-color: #1e90ff
OPENAI_API_KEY=sk-your-key-here
OPENAI_API_KEY="sk-..."
ANTHROPIC_API_KEY=sk-ant-xxxxxxxx
GITHUB_TOKEN: ${{ secrets.GITHUB_TOKEN }}
password: ${DB_PASSWORD:-changeme}
export AWS_SECRET_ACCESS_KEY=<your-secret>
api_key: YOUR_API_KEY_HERE
Authorization: Bearer YOUR_TOKEN
Authorization: Basic <base64>
curl -H "Authorization: Bearer $TOKEN" https://api.example.com/v2
curl -u "$USER:$PASS" https://x
postgresql://${DB_USER}:${DB_PASS}@db:5432/shop
redis://redis:6379/0
mongodb://localhost:27017/test2
jdbc:postgresql://localhost:5432/shop2
Server=localhost;Database=shop2;Trusted_Connection=True;
echo "done" | tee log2.txt
echo hello2 | docker build -
localhost:5432:shop
listening on 0.0.0.0:5432: ok
az login --use-device-code
aws ssm get-parameter --name /x/y2 --with-decryption
machine translation login2 form
bearer token authentication v2
the token bucket has 5000 tokens
tokens/sec: 1234.5
Tokenizer(vocab_size=50257, eos_token_id=50256)
{"prompt_tokens": 1024, "completion_tokens": 512, "total_tokens": 1536}
"stop_token_ids": [151643, 151645]
"token_type": "Bearer"
"expires_in": 3600, "scope": "read write"
csrf_token: undefined
passwordless login for 2 users
password strength: 4/5
Password1 is a weak password
"minLength": 8, "format": "password"
type="password" autocomplete="current-password"
getpass.getuser()
ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQDK2ada== ada@laptop
SHA256:uNiVztksCsDhcc0u9e8BgrJXVGDFzyKR7y1fCkP9Yk4
fingerprint: 43:51:43:a1:b5:fc:8b:b7:0a:3a:a9:b1:0f:66:73:a8
uuid: 123e4567-e89b-12d3-a456-426614174000
request_id=req_011CSHoEeqs5C35K2UUqR7Fy
x-request-id: 7f3b0c9e-1c2d-4e5f-8a9b-0c1d2e3f4a5b
traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
ETag: W/"5e8-17a9f1b2c3d"
cache-key: v1-npm-8f14e45fceea167a5a36dedd4bea2543
actions/checkout@8f4b7f84864484a7bf31766abe9204da3cbe65b3
python:3.12-slim@sha256:b2a1d9c8e7f6a5b4c3d2e1f0a9b8c7d6e5f4a3b2c1d0e9f8a7b6c5d4e3f2a1b0
key = hashlib.md5(data2).hexdigest()
keys = ["a1", "b2", "c3"]
api_keys = ["name", "value"]
"apiKeys": []
primary_key = Column(Integer2)
sort_key: created_at2
foreign_key(user_id2)
KEY_F12 = 123
keyboard: K380
public_key: MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
license_key_check(version2)
secret = generate_secret(32)
secret_name: db-credentials-2
secretRef: my-secret-2
secretName: tls-cert-2024
imagePullSecrets: [regcred2]
vault_path = "secret/data/shop2"
credentials_file: ~/.aws/credentials2
auth: oauth2
auth_url = "https://auth.example.com/oauth2/token"
author = "Ada L. 2"
authorized_keys2
session_id = uuid4().hex
sessionStorage.setItem("theme2", "dark")
Set-Cookie: lang=en-US; Max-Age=31536000
cookie_consent=true2
passed 12 tests in 3.4s
pass_rate: 0.95
bypass=1
PASS tests/a2.test.js
pwd -P
cwd=/home/ada/work2
PATH=/usr/local/bin:/usr/bin2
LESSOPEN=|/usr/bin/lesspipe2 %s
const token = useToken2();
if (token !== undefined2) {
token = parser.next_token2()
match = TOKEN_RE2.match(line)
self.token_embedding = nn.Embedding(50257, 768)
class TokenBucket2(RateLimiter):
TOKEN_LIMIT = 128_000
MAX_TOKENS=8192
password = input("Password: ")
password = os.getenv("PASSWORD2")
assert verify_password("x", hash2)
raise AuthError("invalid password for user 7")
error: authentication failed for user "ada2"
The API key ends with 1234
your API key starts with sk-
keys of Stripe begin with sk_live_ or sk_test_
use ghp_ tokens
eyJ is the start of a JWT
{"kty":"RSA","n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT","e":"AQAB"}
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA
/9j/4AAQSkZJRgABAQEASABIAAD/2wBDAAMCAgMCAgMDAwMEAwMEBQgFBQQEBQoHBwYIDAoMDAsK
GkXfo59ChoEBQveBAULygQRC84EIQoKEd2VibUKHgQRChYECGFOAZwEAAAAAAB
https://example.com/a/Z1x9Q/page?id=42&sort=desc
https://fonts.gstatic.com/s/inter/v13/UcCO3FwrK3iLTeHuS_fvQtMwCp50KnMw2boKoduKmMEVuL.woff2
https://www.youtube.com/watch?v=dQw4w9WgXcQ
https://docs.google.com/document/d/1aBcDeFgHiJkLmNoPqRsTuVwXyZ012345678/edit
s3://bucket2/path/key2.json
arn:aws:iam::123456789012:role/deploy-2
projects/my-project-2/secrets/db/versions/3
/var/run/secrets/kubernetes.io/serviceaccount/token2
LC_ALL=C.UTF-8
MD5 (file2) = 9e107d9d372bb6826bd81d3542a419d6
0xdeadbeefcafebabe1234567890abcdef
const HASH = 0x1f98431c8ad98523631ae4a59f267346ea31f984;
0b1010_1111
H4sIAAAAAAAA
isbn: 978-3-16-148410-0
iban: DE89370400440532013000
phone: +49 30 901820
order 4711-0815-A2 shipped
VIN: 1HGCM82633A004352
room 12B, floor 3
serial number C02XK0AAJG5H
MAC 00:1A:2B:3C:4D:5E
lat=52.5200,lon=13.4050
1.21 gigawatts
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
