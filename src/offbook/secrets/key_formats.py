"""The formats of keys: prefixes that providers publish, and places where only a secret can be.

The key of a format is a word that every such secret contains, in lower case. Its pattern is matched
at the word, or up to `LOOKBEHIND` bytes before it. The last group is hidden, or the whole match.
"""

# No letter, digit or underscore before it, except the end of an escape: "\n" or "%3D".
EDGE = r"(?:(?<![A-Za-z0-9_])|(?<=\\[bfnrt])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4}))"
END = r"(?![A-Za-z0-9_])"
DIGIT = r"(?=[A-Za-z_-]*[0-9])"  # a word has none
TAIL = r"[A-Za-z0-9_-]"
HALF = r"[A-Za-z0-9/+]"

# Keys by the prefixes that providers publish so that they can be found. Each stands between word
# borders and has a digit: `mark_test_complete` and `ghp_xxxxxxxxxxxxxxxxxxxx` are none.
KEYS = {
    # models and their tools
    # not `sk-ecdsa-sha2-nistp256`: a key has a known prefix, a long part, or capitals
    "sk-": r"sk-(?=(?:ant|proj|or)-|[A-Za-z0-9_-]*?(?:[A-Z]|[A-Za-z0-9_]{12}))[A-Za-z0-9_-]{12,}",
    "sess-": rf"sess-{DIGIT}[A-Za-z0-9]{{32,}}",
    "aiza": rf"AIza{TAIL}{{20,}}",  # Google
    "ya29.": rf"ya29\.{TAIL}{{16,}}",
    "gocspx-": rf"GOCSPX-{TAIL}{{16,}}",
    "1//0": rf"1//0{TAIL}{{30,}}",
    "gsk_": r"gsk_[A-Za-z0-9]{16,}",
    "xai-": r"xai-[A-Za-z0-9]{16,}",
    "hf_": r"hf_[A-Za-z0-9]{16,}",
    "api_org_": r"api_org_[A-Za-z0-9]{16,}",
    "r8_": r"r8_[A-Za-z0-9]{16,}",
    "pplx-": r"pplx-[A-Za-z0-9]{16,}",
    "fw_": r"fw_[A-Za-z0-9]{16,}",
    "nvapi-": rf"nvapi-{TAIL}{{16,}}",
    "tgp_v1_": rf"tgp_v1_{TAIL}{{16,}}",
    "csk-": r"csk-[A-Za-z0-9]{16,}",  # Cerebras
    "pa-": rf"pa-{DIGIT}{TAIL}{{40,}}",  # Voyage
    "jina_": r"jina_[A-Za-z0-9_-]{32,}",
    "pcsk_": r"pcsk_[A-Za-z0-9_]{24,}",  # Pinecone
    "esecret_": r"esecret_[A-Za-z0-9]{16,}",
    "lsv2_": r"lsv2_(?:pt|sk)_[A-Za-z0-9_]{16,}",
    "tvly-": r"tvly-[A-Za-z0-9-]{16,}",
    "fc-": r"fc-[0-9a-f]{32}",  # Firecrawl
    "apify_api_": r"apify_api_[A-Za-z0-9]{16,}",
    "bb_live_": rf"bb_live_{TAIL}{{16,}}",
    "e2b_": r"e2b_[A-Za-z0-9]{16,}",
    "as-": rf"as-{DIGIT}[A-Za-z0-9]{{22}}(?![A-Za-z0-9_-])",  # Modal
    "ak-": rf"ak-{DIGIT}[A-Za-z0-9]{{22}}(?![A-Za-z0-9_-])",
    "key_": r"key_[0-9a-f]{64}",  # Cursor
    # clouds
    **{  # AWS, with the secret half of a pair
        kind.lower(): rf"{kind}[0-9A-Z]{{16}}(?:[,:;\s]{{1,3}}{HALF}{{40}}(?!{HALF}))?"
        for kind in ("AKIA", "ASIA")
    },
    "absk": r"ABSK[0-9A-Za-z+/=]{20,}",
    "bedrock-api-key-": r"bedrock-api-key-[0-9A-Za-z+/=_-]{16,}",
    "q~": r"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}",  # Entra
    "ltai": rf"LTAI{DIGIT}[A-Za-z0-9]{{12,}}",  # Alibaba
    "akid": rf"AKID{DIGIT}[A-Za-z0-9]{{28,}}",  # Tencent
    **{f"do{kind}_v1_": rf"do{kind}_v1_[a-f0-9]{{32,}}" for kind in "opr"},  # DigitalOcean
    "hrku-": rf"HRKU-AA{TAIL}{{30,}}",
    "fm2_": r"fm2_[A-Za-z0-9+/=_-]{30,}",  # Fly
    "fm1_": r"fm1_[A-Za-z0-9+/=_-]{30,}",
    "fo1_": rf"fo1_{TAIL}{{30,}}",
    "dapi": r"dapi[0-9a-f]{32}(?:-[0-9])?",  # Databricks
    "dose": r"dose[0-9a-f]{32}(?:-[0-9])?",
    "v1.0-": r"v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}",  # Cloudflare
    "nfp_": r"nfp_[A-Za-z0-9]{30,}",  # Netlify
    # code and packages
    "ghp_": r"ghp_[A-Za-z0-9]{16,}",
    "gho_": r"gho_[A-Za-z0-9]{16,}",
    "ghu_": r"ghu_[A-Za-z0-9]{16,}",
    "ghs_": r"ghs_[A-Za-z0-9]{16,}",
    "ghr_": r"ghr_[A-Za-z0-9]{16,}",
    "github_pat_": r"github_pat_[A-Za-z0-9_]{16,}",
    **{  # GitLab
        f"{kind}-": rf"{kind}-[A-Za-z0-9_.-]{{12,}}"
        for kind in (
            *("glpat", "gldt", "glrt", "glcbt", "glft", "gloas", "glagent", "glptt", "glsoat"),
            *("glimt", "glrtr", "glffct"),
        )
    },
    "gr1348941": rf"GR1348941{TAIL}{{16,}}",
    "atatt3": r"ATATT3[A-Za-z0-9_=-]{16,}",  # Atlassian
    "atctt3": r"ATCTT3[A-Za-z0-9_=-]{16,}",
    "atbb": r"ATBB[A-Za-z0-9]{24,}",
    "npm_": r"npm_[A-Za-z0-9]{20,}",
    "pypi-": rf"pypi-{TAIL}{{16,}}",
    "rubygems_": r"rubygems_[0-9A-Za-z]{16,}",
    "clojars_": r"CLOJARS_[0-9a-z]{40,}",
    "dckr_": rf"dckr_(?:pat|oat)_{TAIL}{{16,}}",
    "akcp": r"AKCp[0-9A-Za-z]{60,}",  # Artifactory
    "cmvmdgtu": r"cmVmdGtu[0-9A-Za-z]{50,}",
    "bkua_": r"bkua_[a-z0-9]{30,}",  # Buildkite
    "sgp_": r"sgp_[a-fA-F0-9_]{32,}",  # Sourcegraph
    "figd_": rf"figd_{TAIL}{{30,}}",
    "pat.": rf"pat\.{TAIL}{{22}}\.[0-9a-f]{{24}}\.[A-Za-z0-9]{{20}}",  # Harness
    "pul-": r"pul-[0-9a-f]{40}",  # Pulumi
    ".atlasv1.": rf"[A-Za-z0-9]{{14}}\.atlasv1\.{TAIL}{{50,}}",  # Terraform
    # secret stores and monitoring
    "hvs.": rf"hvs\.{TAIL}{{16,}}",  # Vault
    "hvb.": rf"hvb\.{TAIL}{{16,}}",
    "hvr.": rf"hvr\.{TAIL}{{16,}}",
    "dp.": r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{16,}",
    "ops_eyj": rf"ops_eyJ{TAIL}{{60,}}",  # 1Password
    "age-secret-key-": r"AGE-SECRET-KEY-1[0-9A-Z]{16,}",
    "tskey-": r"tskey-[a-z]+-[A-Za-z0-9-]{12,}",  # Tailscale
    "sntry": r"sntry[su]_[A-Za-z0-9_=+/]{16,}",
    "phc_": r"phc_[A-Za-z0-9]{16,}",  # PostHog
    "phx_": r"phx_[A-Za-z0-9]{16,}",
    "glsa_": r"glsa_[A-Za-z0-9_]{16,}",  # Grafana
    "glc_": r"glc_[A-Za-z0-9+/=]{30,}",
    "eyjrijoi": r"eyJrIjoi[A-Za-z0-9]{40,}={0,2}",
    "nrak-": r"NRAK-[A-Z0-9]{16,}",  # New Relic
    "dt0c01.": r"dt0c01\.[A-Z0-9]{24}\.[A-Z0-9]{64}",  # Dynatrace
    "pscale_": r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{16,}",
    "sbp_": r"sbp_[A-Za-z0-9]{16,}",  # Supabase
    "sb_secret_": rf"sb_secret_{TAIL}{{16,}}",
    # messages and payments
    "xox": r"xox[abcdeoprs](?:-|\.xox[bp]-)[A-Za-z0-9%-]{8,}",  # Slack
    "xapp-": r"xapp-[A-Za-z0-9-]{8,}",
    ":aa": r"[0-9]{8,10}(:AA[A-Za-z0-9_-]{30,36})",  # Telegram
    **{f"sk{digit}": r"SK[0-9a-f]{32}" for digit in "0123456789abcdef"},  # Twilio
    "sg.": rf"SG\.{TAIL}{{12,}}\.{TAIL}{{12,}}",  # SendGrid
    "key-": r"key-[0-9a-f]{32}",  # Mailgun
    **{f"-us{digit}": r"[0-9a-f]{32}-us[0-9]{1,2}\b" for digit in range(1, 10)},  # Mailchimp
    "k_live_": r"[sr]k_live_[0-9A-Za-z]{8,}",  # Stripe
    "k_test_": r"[sr]k_test_[0-9A-Za-z]{8,}",
    "whsec_": r"whsec_[0-9A-Za-z+/=]{12,}",
    "sq0": rf"sq0[a-z]{{3}}-{TAIL}{{20,}}",  # Square
    "eaaa": r"EAAA(?!A)[A-Za-z0-9_-]{60}(?![A-Za-z0-9_-])",
    "shp": r"shp(?:at|ca|pa|ss)_[0-9A-Za-z]{16,}",  # Shopify
    "eaacedeose0cba": r"EAACEdEose0cBA[0-9A-Za-z]{16,}",  # Facebook
    "duffel_": rf"duffel_(?:test|live)_{TAIL}{{30,}}",
    "ezak": r"EZAK[A-Za-z0-9]{40,}",  # EasyPost
    "eztk": r"EZTK[A-Za-z0-9]{40,}",
    "lin_": r"lin_(?:api|oauth)_[A-Za-z0-9]{16,}",  # Linear
    "ntn_": r"ntn_[A-Za-z0-9]{16,}",  # Notion
    "secret_": r"secret_[A-Za-z0-9]{43}(?![A-Za-z0-9])",
    "pmak-": r"PMAK-[A-Za-z0-9-]{16,}",  # Postman
    # of any service: a web token, and "-----BEGIN " in base64, but not of a certificate
    "eyj": rf"eyJ{TAIL}{{8,}}\.(?:eyJ{TAIL}{{6,}}|{TAIL}*\.{TAIL}{{8,}}\.{TAIL}+)\.{TAIL}{{6,}}",
    "ls0tls1crudjti": r"LS0tLS1CRUdJTi(?!BD)[A-Za-z0-9+/=_-]{20,}",
}

# Secrets by what is around them. The last group is hidden, or the whole match.
_PEM_LINE = r"(?:\s|\\+[nr])"
_KEY_BLOCK = (
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
    rf"(?={_PEM_LINE}*[A-Za-z0-9+/]{{4}})"  # the line alone is no key
    rf"(?:[A-Za-z0-9+/=:,.]|{_PEM_LINE}|-(?!----))*"
    r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)?"
)
PLACES = {
    "private key-----": _KEY_BLOCK,
    "private key block-----": _KEY_BLOCK,
    "hooks.slack.com/": r"hooks\.slack\.com/[a-z]+/([A-Za-z0-9/_-]{8,})",
    "/webhooks/": rf"/webhooks/[0-9]{{10,}}/({TAIL}{{20,}})",  # Discord
    "/webhookb2/": r"/webhookb2/([A-Za-z0-9@/_-]{16,})",  # Teams
    # a password in a URL, but not the second host of `//one:80,user:x@two`
    "://": rf"://(?:[^\s:/@\"'\\<>\[\]]*:(?![0-9]+,)|(?<=https://)(?={DIGIT}{TAIL}{{20,}}@))([^\s/\"'\\`<>]+)@",
    "bearer": r"(?i:bearer)[ \t]+(?=\S*[0-9]|[A-Za-z]{20})([A-Za-z0-9._~+/=-]{8,})",
    "signature=": r"(?i:signature)=(?=[A-Za-z%+/=_~-]*[0-9])([A-Za-z0-9%+/=_~-]{16,})",
    "response=\\": r"(?i:response)=\\*\"([0-9a-f]{32,})",  # a digest of a password
    'response="': r"(?i:response)=\"([0-9a-f]{32,})",
    # command lines
    **{
        f"{option} ": rf"(?<=\s){option} \\*[\"']?[A-Za-z0-9@._-]+:(?![0-9]+\b)([^\s\"'\\]{{3,}})"
        for option in ("-u", "--user", "--proxy-user")
    },
    "sshpass": r"sshpass\s+-p\s*\\*[\"']?([^\s\"'\\]{3,})",
    "docker login": r"docker login\b[^\n\\|;&]{0,200}?\s-p[ =]?\\*[\"']?([^\s\"'\\]{3,})",
    "mysql": r"mysql(?:dump|admin)?\b[^\n\\|;&]{0,200}?\s-p([^\s\"'\\]{4,})",
    "machine ": r"machine\s+\S+\s+login\s+\S+\s+password\s+([^\s\"'\\]{3,})",  # .netrc
}
LOOKBEHIND = {
    "k_live_": 1,
    "k_test_": 1,
    ":aa": 10,
    "q~": 4,
    ".atlasv1.": 14,
    "private key-----": 40,
    "private key block-----": 40,
    **{f"-us{digit}": 32 for digit in range(1, 10)},
}
