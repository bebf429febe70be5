"""The formats of keys: one line for each, with its source, and the places of other secrets.

A format has a word that every such key contains, in lower case, and a pattern that is matched at
the word, or up to `LOOKBEHIND` bytes before it. The last group is hidden, or the whole match.
"""

from __future__ import annotations

import re
from functools import cache

# Compiled at its first match: there are 200 patterns, and most runs contain the words of few.
compile_pattern = cache(re.compile)

# No letter, digit or underscore before it, except the end of an escape ("\n", "%3D", a color) and
# the mark of Markdown: _key_.
EDGE = (
    r"(?:(?<![A-Za-z0-9_])|(?<=[^A-Za-z0-9_]_)|(?<=\A_)|(?<=\\[bfnrt])|(?<=\\x[0-9A-Fa-f]{2})|(?<=%[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})"
    r"|(?<=\[m)|(?<=[\[;][0-9]m)|(?<=[\[;][0-9]{2}m))"
)
END = r"(?![A-Za-z0-9]|_[A-Za-z0-9_])"
DIGIT = r"(?=[A-Za-z_-]*[0-9])"  # a word has none
TAIL = r"[A-Za-z0-9_-]"
WORD = r"[A-Za-z0-9]"
HALF = r"[A-Za-z0-9/+]"
HEX = r"[0-9a-fA-F]"
UUID = rf"{HEX}{{8}}-(?:{HEX}{{4}}-){{3}}{HEX}{{12}}"


# A word of the key, its pattern, its source, and the length of a whole key unless that varies. A
# text of that length is a key even without a digit; a shorter one may be a word
# (`mark_test_complete`).
# The sources: addresses are of the vendors; "gitleaks" and "trufflehog" name a rule of these
# scanners, whose configurations are public; "detect-secrets" likewise.
KEY_FORMATS: tuple[tuple[str, str, str] | tuple[str, str, str, int], ...] = (
    # models and their tools
    # not `sk-ecdsa-sha2-nistp256`: a key has a known prefix, a long part, or capitals
    (
        "sk-",
        (
            r"sk-(?=(?:ant|proj|or|lf|svcacct|admin|helicone)-|[A-Za-z0-9_-]*?(?:[A-Z]|[A-Za-z0-9_]{12}))"
            rf"{TAIL}{{12,}}"
        ),
        "gitleaks openai-api-key, anthropic-api-key; trufflehog openrouter, langfuse, deepseek",
    ),
    ("sess-", rf"sess-{DIGIT}{WORD}{{32,}}", "platform.openai.com: keys of a browser session"),
    ("aiza", rf"AIza{TAIL}{{20,}}", "gitleaks gcp-api-key", 39),
    ("aq.", rf"AQ\.Ab{TAIL}{{40,}}", "ai.google.dev/gemini-api/docs/api-key"),
    ("ya29.", r"ya29\.[A-Za-z0-9_.-]{16,}", "trufflehog googleoauth2"),
    ("gocspx-", rf"GOCSPX-{TAIL}{{16,}}", "trufflehog googleoauth2", 35),
    ("1//0", rf"1//0{TAIL}{{30,}}", "developers.google.com/identity/protocols/oauth2"),
    ("gsk_", rf"gsk_{WORD}{{16,}}", "trufflehog groq", 56),
    ("xai-", rf"xai-{WORD}{{16,}}", "trufflehog xai", 84),
    ("hf_", rf"hf_{WORD}{{16,}}", "gitleaks huggingface-access-token", 37),
    ("api_org_", rf"api_org_{WORD}{{16,}}", "gitleaks huggingface-organization-api-token", 42),
    ("r8_", rf"r8_{TAIL}{{16,}}", "trufflehog replicate", 40),
    ("pplx-", rf"pplx-{WORD}{{16,}}", "gitleaks perplexity-api-key", 53),
    ("fw_", rf"fw_{WORD}{{16,}}", "docs.fireworks.ai: API keys", 27),
    ("nvapi-", rf"nvapi-{TAIL}{{16,}}", "trufflehog nvapi", 70),
    ("tgp_v1_", rf"tgp_v1_{TAIL}{{16,}}", "docs.together.ai: API keys", 50),
    ("csk-", rf"csk-{WORD}{{16,}}", "inference-docs.cerebras.ai: API keys", 52),
    ("pa-", rf"pa-{DIGIT}{TAIL}{{40,}}", "docs.voyageai.com: API keys"),
    ("jina_", rf"jina_{TAIL}{{32,}}", "jina.ai: API keys"),
    ("pcsk_", r"pcsk_[A-Za-z0-9_]{24,}", "trufflehog pinecone", 75),
    ("esecret_", rf"esecret_{WORD}{{16,}}", "docs.anyscale.com: API keys"),
    ("lsv2_", r"lsv2_(?:pt|sk)_[A-Za-z0-9_]{16,}", "trufflehog langsmith"),
    ("tvly-", r"tvly-[A-Za-z0-9-]{16,}", "trufflehog tavily", 36),
    ("fc-", r"fc-[0-9a-f]{32}", "docs.firecrawl.dev: API keys"),
    ("apify_api_", rf"apify_api_{WORD}{{16,}}", "trufflehog apify", 46),
    ("bb_live_", rf"bb_live_{TAIL}{{16,}}", "docs.browserbase.com: API keys", 35),
    ("e2b_", rf"e2b_{WORD}{{16,}}", "e2b.dev/docs: API keys", 44),
    ("as-", rf"as-(?=[a-z]*[A-Z0-9]){WORD}{{22}}", "modal.com/docs: token secrets", 25),
    ("ak-", rf"ak-(?=[a-z]*[A-Z0-9]){WORD}{{22}}", "modal.com/docs: token ids", 25),
    ("key_", r"key_[0-9a-f]{64}", "docs.cursor.com: API keys"),
    ("wandb_v1_", r"wandb_v1_[A-Za-z0-9_]{40,}", "docs.wandb.ai: API keys"),
    ("sk_", r"sk_[0-9a-f]{48}", "elevenlabs.io/docs: API keys"),
    ("salad_cloud_", r"salad_cloud_[A-Za-z0-9_]{16,}", "trufflehog saladcloudapikey"),
    ("pylf_v1_", rf"pylf_v1_[a-z]{{2}}_{WORD}{{40,}}", "logfire.pydantic.dev: write tokens", 54),
    ("m0-", rf"m0-{WORD}{{40}}", "docs.mem0.ai: API keys", 43),
    ("nk-", rf"nk-{TAIL}{{43}}(?!{TAIL})", "docs.nomic.ai: API keys", 46),
    ("sk-let-", r"sk-let-[A-Za-z0-9+/]{40,}={0,2}", "docs.letta.com: API keys"),
    ("fe_oa_", r"fe_oa_[0-9a-f]{32,}", "friendli.ai/docs: tokens"),
    ("flp_", rf"flp_{WORD}{{30,}}", "friendli.ai/docs: personal tokens", 40),
    ("cal_live_", r"cal_live_[0-9a-f]{32}", "cal.com/docs: API keys"),
    ("tr_", r"tr_(?:dev|prod|stg|preview|pat)_[A-Za-z0-9]{20,}", "trigger.dev/docs: API keys", 28),
    ("signkey-", r"signkey-[a-z]+-[0-9a-f]{32,}", "inngest.com/docs: signing keys"),
    ("unkey_", rf"unkey_{WORD}{{20,}}", "unkey.com/docs: root keys", 28),
    # clouds
    (
        "jqqj9",
        r"[A-Za-z0-9]{52}JQQJ9[9DH][A-Za-z0-9][A-L][A-Za-z0-9]{24}(?:[A-Za-z0-9]{2}==)?",
        "github.com/microsoft/security-utilities: identifiable keys",
    ),
    *[
        (
            mark.lower(),
            rf"[A-Za-z0-9+/]{{{before}}}{re.escape(mark)}[A-Za-z0-9+/]{{5,8}}={{0,2}}",
            "github.com/microsoft/security-utilities: identifiable keys",
        )
        for mark, before in (
            *(("+ASt", 76), ("ACDb", 76), ("AzFu", 44), ("AzSe", 42), ("+ACR", 42), ("AzCa", 33)),
        )
    ],
    ("azdo", r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}", "learn.microsoft.com: access tokens of DevOps"),
    ("scw", r"SCW[0-9A-Z]{17}", "scaleway.com/en/docs: access keys", 20),
    ("exo", r"EXO[0-9a-f]{24}", "community.exoscale.com: API keys"),
    ("avns_", rf"AVNS_{TAIL}{{16,}}", "aiven.io/docs: passwords of services", 24),
    ("swmtkn-", r"SWMTKN-1-[0-9a-z]{50}-[0-9a-z]{25}", "docs.docker.com: tokens of a swarm", 85),
    (
        "prod:",
        r"(?:prod|dev|preview):[a-z]+-[a-z]+-[0-9]+\|[A-Za-z0-9+/=_-]{30,}",
        "docs.convex.dev: deploy keys",
    ),
    ("dev:", r"dev:[a-z]+-[a-z]+-[0-9]+\|[A-Za-z0-9+/=_-]{30,}", "docs.convex.dev: deploy keys"),
    *[
        (f"{kind}_", rf"{kind}_[A-Za-z0-9_=-]{{30,}}", "docs.getdbt.com: tokens")
        for kind in ("dbtc", "dbtu")
    ],
    *[  # with the secret half of a pair
        (
            kind.lower(),
            rf"{kind}[0-9A-Z]{{16}}(?:[,:;\s]{{1,3}}{HALF}{{40}}(?!{HALF}))?",
            "gitleaks aws-access-token",
            20,
        )
        for kind in ("AKIA", "ASIA", "ABIA", "ACCA")
    ],
    ("absk", r"ABSK[0-9A-Za-z+/=]{20,}", "gitleaks aws-amazon-bedrock-api-key-long-lived"),
    (
        "bedrock-api-key-",
        r"bedrock-api-key-[0-9A-Za-z+/=_-]{16,}",
        "gitleaks aws-amazon-bedrock-api-key-short-lived",
    ),
    ("amzn.mws.", rf"amzn\.mws\.{UUID}", "trufflehog: Amazon MWS"),
    ("amzn1.oa2-cs.", r"amzn1\.oa2-cs\.v1\.[0-9a-f]{64}", "developer.amazon.com: LWA secrets"),
    ("q~", r"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}", "gitleaks azure-ad-client-secret"),
    ("ltai", rf"LTAI{WORD}{{12,}}", "gitleaks alibaba-access-key-id", 24),
    ("akid", rf"AKID{WORD}{{28,}}", "trufflehog tencentcloudkey", 36),
    *[
        (f"do{kind}_v1_", rf"do{kind}_v1_[a-f0-9]{{32,}}", f"gitleaks digitalocean-{name}")
        for kind, name in (("o", "access-token"), ("p", "pat"), ("r", "refresh-token"))
    ],
    ("hrku-", rf"HRKU-AA{TAIL}{{30,}}", "gitleaks heroku-api-key-v2"),
    *[
        (kind, rf"{kind}[A-Za-z0-9+/=_-]{{30,}}", "gitleaks flyio-access-token")
        for kind in ("fm2_", "fm1_", "fm1a_", "fm1r_", "fo1_")
    ],
    ("dapi", r"dapi[0-9a-f]{32}(?:-[0-9])?", "gitleaks databricks-api-token"),
    ("dose", r"dose[0-9a-f]{32}(?:-[0-9])?", "docs.databricks.com: OAuth secrets"),
    ("v1.0-", r"v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}", "gitleaks cloudflare-origin-ca-key"),
    *[
        (kind, rf"{kind}{WORD}{{40,}}", "trufflehog cloudflareapitoken")
        for kind in ("cfk_", "cfut_", "cfat_")
    ],
    ("nfp_", r"nfp_[A-Za-z0-9_]{30,}", "trufflehog netlify", 40),
    *[
        (kind, rf"{kind}{WORD}{{24,}}", "vercel.com/docs: formats of tokens")
        for kind in ("vcp_", "vci_", "vca_", "vcr_", "vck_")
    ],
    ("vercel_blob_rw_", r"vercel_blob_rw_[A-Za-z0-9_]{24,}", "vercel.com/docs: Blob tokens"),
    ("rnd_", rf"rnd_{WORD}{{20,}}", "render.com/docs: API keys", 36),
    ("tk-us-", rf"tk-us-{TAIL}{{30,}}", "gitleaks scalingo-api-token", 54),
    ("sha256~", rf"sha256~{TAIL}{{43}}", "gitleaks openshift-user-token", 50),
    ("aqvn", rf"AQVN{TAIL}{{35,38}}", "gitleaks yandex-api-key", 39),
    ("t1.", rf"t1\.{TAIL}+={{0,2}}\.{TAIL}{{86}}={{0,2}}", "gitleaks yandex-access-token"),
    ("4b1d", rf"4b1d{WORD}{{38}}", "gitleaks clickhouse-cloud-api-secret-key"),
    ("napi_", rf"napi_{WORD}{{40,}}", "neon.com/docs: API keys", 69),
    (
        "pscale_",
        r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{16,}",
        "gitleaks planetscale-api-token",
        42,
    ),
    ("sbp_", rf"sbp_{WORD}{{16,}}", "trufflehog supabasetoken", 44),
    ("sb_secret_", rf"sb_secret_{TAIL}{{16,}}", "supabase.com/docs: API keys", 41),
    # code and packages
    *[
        (f"{kind}_", rf"{kind}_{WORD}{{16,}}", "github.blog: token formats of 2021", 40)
        for kind in ("ghp", "gho", "ghu", "ghs", "ghr")
    ],
    ("github_pat_", r"github_pat_[A-Za-z0-9_]{16,}", "gitleaks github-fine-grained-pat", 93),
    *[
        (
            f"{kind}-",
            rf"{kind}-[A-Za-z0-9_.-]{{12,}}",
            "docs.gitlab.com: token prefixes",
            len(kind) + 21,
        )
        for kind in (
            *("glpat", "gldt", "glrt", "glcbt", "glft", "gloas", "glagent", "glptt", "glsoat"),
            *("glimt", "glrtr", "glffct", "glwt"),
        )
    ],
    ("gr1348941", rf"GR1348941{TAIL}{{16,}}", "gitleaks gitlab-rrt"),
    ("_gitlab_session=", r"_gitlab_session=([0-9a-z]{32})", "gitleaks gitlab-session-cookie"),
    ("atatt3", r"ATATT3[A-Za-z0-9_=-]{16,}", "gitleaks atlassian-api-token"),
    ("atctt3", r"ATCTT3[A-Za-z0-9_=-]{16,}", "developer.atlassian.com: access tokens"),
    ("atbb", rf"ATBB{WORD}{{24,}}", "trufflehog bitbucketapppassword", 36),
    ("atta", r"ATTA[0-9a-f]{64,}", "trufflehog trelloapikey"),
    ("bbdc-", r"BBDC-[A-Za-z0-9+/@_-]{40,50}", "trufflehog bitbucketdatacenter", 49),
    ("npm_", rf"npm_{WORD}{{20,}}", "github.blog: token formats of npm", 40),
    ("pypi-", rf"pypi-{TAIL}{{16,}}", "gitleaks pypi-upload-token"),
    ("rubygems_", r"rubygems_[0-9A-Za-z]{16,}", "gitleaks rubygems-api-token", 57),
    ("clojars_", r"CLOJARS_[0-9a-z]{40,}", "gitleaks clojars-api-token"),
    ("oy2", r"oy2[a-z0-9]{43}", "trufflehog nugetapikey", 46),
    ("cio", rf"cio{WORD}{{32}}", "crates.io: API tokens", 35),
    ("dckr_", rf"dckr_(?:pat|oat)_{TAIL}{{16,}}", "trufflehog dockerhub", 36),
    ("akcp", r"AKCp[0-9A-Za-z]{60,}", "gitleaks artifactory-api-key"),
    ("cmvmd", r"cmVmd[0-9A-Za-z]{50,}", "gitleaks artifactory-reference-token"),
    ("bkua_", r"bkua_[a-z0-9]{30,}", "trufflehog buildkite", 45),
    ("ccipat_", r"CCIPAT_[A-Za-z0-9]{16,}_[0-9a-f]{40}", "trufflehog circleci"),
    ("sgp_", r"sgp_[a-fA-F0-9_]{32,}", "gitleaks sourcegraph-access-token"),
    ("sgp_local_", r"sgp_local_[a-fA-F0-9]{32,}", "gitleaks sourcegraph-access-token"),
    ("slk_", r"slk_[a-f0-9]{64}", "trufflehog sourcegraphcody"),
    *[
        (kind, rf"{kind}[0-9a-zA-Z]{{36,}}", "gitleaks sonar-api-token", 44)
        for kind in ("squ_", "sqp_", "sqa_", "sqco_")
    ],
    ("snyk_", r"snyk_[a-z]{2,4}\.[A-Za-z0-9._-]{30,}", "docs.snyk.io: access tokens"),
    ("figd_", rf"figd_{TAIL}{{30,}}", "trufflehog figmapersonalaccesstoken"),
    *[
        (
            f"{kind}.",
            rf"{kind}\.{TAIL}{{22}}\.{WORD}{{24}}\.{WORD}{{20}}",
            "gitleaks harness-api-key",
        )
        for kind in ("pat", "sat")
    ],
    ("pul-", r"pul-[0-9a-f]{40}", "gitleaks pulumi-api-token"),
    (".atlasv1.", rf"{WORD}{{14}}\.atlasv1\.{TAIL}{{50,}}", "gitleaks hashicorp-tf-api-token"),
    ("ico-", rf"ico-{WORD}{{32}}", "gitleaks infracost-api-token", 36),
    ("pnu_", rf"pnu_{WORD}{{36}}", "gitleaks prefect-api-token", 40),
    ("api-", r"API-[A-Z0-9]{26}", "gitleaks octopus-deploy-api-key"),
    ("rdme_", r"rdme_[a-z0-9]{70}", "gitleaks readme-api-token", 75),
    # secret stores, identity and monitoring
    *[
        (f"{kind}.", rf"{kind}\.{TAIL}{{16,}}", "developer.hashicorp.com/vault: tokens")
        for kind in ("hvs", "hvb", "hvr")
    ],
    (
        "s.",
        rf"s\.(?=[a-z0-9]*[A-Z])(?=[A-Z0-9]*[a-z]){WORD}{{24}}(?![(-]|\.[A-Za-z])",
        "gitleaks vault-service-token, before Vault 1.10",
    ),
    ("secret-", rf"secret-{WORD}{{32,}}", "docs.statsig.com: server secrets", 47),
    (
        "dp.",
        r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{16,}",
        "gitleaks doppler-api-token",
        49,
    ),
    ("ops_eyj", r"ops_eyJ[A-Za-z0-9+/_-]{60,}={0,3}", "gitleaks 1password-service-account-token"),
    (
        "a3-",
        r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}",
        "gitleaks 1password-secret-key",
    ),
    ("age-secret-key-", r"AGE-SECRET-KEY-(?:PQ-)?1[0-9A-Z]{16,}", "gitleaks age-secret-key"),
    ("age-plugin-", r"AGE-PLUGIN-[A-Z0-9]+-1[0-9A-Z]{16,}", "c2sp.org/age-plugin"),
    ("xprv", r"xprv9?[1-9A-HJ-NP-Za-km-z]{100,}", "bips.dev/32"),
    ("rwrty0iy", r"RWRTY0Iy[A-Za-z0-9+/=]{100,}", "jedisct1.github.io/minisign"),
    ("tskey-", r"tskey-[a-z]+-[A-Za-z0-9_-]{12,}", "trufflehog tailscale"),
    ("dnkey-", rf"dnkey-{TAIL}{{26}}-{TAIL}{{52}}", "gitleaks defined-networking-api-token"),
    *[
        (kind, rf"{kind}{UUID}", "gitleaks launchdarkly-access-token")
        for kind in ("sdk-", "api-", "mob-", "rel-")
    ],
    ("sntry", r"sntry[su]_[A-Za-z0-9_=+/]{16,}", "gitleaks sentry-user-token, sentry-org-token"),
    ("phc_", rf"phc_{WORD}{{16,}}", "posthog.com/docs: API keys"),
    ("phx_", r"phx_[A-Za-z0-9_]{16,}", "trufflehog posthog", 47),
    ("glsa_", r"glsa_[A-Za-z0-9_]{16,}", "gitleaks grafana-service-account-token", 46),
    ("glc_", r"glc_[A-Za-z0-9+/=]{30,}", "gitleaks grafana-cloud-api-token"),
    ("eyjrijoi", r"eyJrIjoi[A-Za-z0-9]{40,}={0,2}", "gitleaks grafana-api-key"),
    ("nrak-", r"NRAK-[A-Z0-9]{16,}", "gitleaks new-relic-user-api-key", 32),
    *[
        (
            kind.lower(),
            rf"{kind}{TAIL}{{19,}}",
            "gitleaks new-relic-insert-key; trufflehog newrelic",
        )
        for kind in ("NRII-", "NRIQ-", "NRJS-", "NRBR-", "NRSP-", "NRRA-")
    ],
    ("dt0", r"dt0[a-z][0-9]{2}\.[A-Z0-9]{8,24}\.[A-Z0-9]{64}", "gitleaks dynatrace-api-token"),
    *[
        (kind, rf"{kind}[a-zA-Z0-9_]{{20,}}", "docs.honeycomb.io: API keys")
        for kind in ("hcaik_", "hcaic_", "hcamk_", "hcbik_")
    ],
    *[
        (kind, rf"{kind}{WORD}{{30,}}", "docs.datadoghq.com: API and app keys", 40)
        for kind in ("ddapp_", "ddapi_", "ddpat_")
    ],
    ("rootly_", r"rootly_[a-f0-9]{64}", "trufflehog rootly"),
    *[
        (kind, rf"{kind}{UUID}", "axiom.co/docs: API and personal tokens")
        for kind in ("xaat-", "xapt-")
    ],
    *[  # an account, a key, and its signature
        (
            f"{kind}_",
            rf"{kind}_[a-z0-9]{{5,30}}\.[a-z0-9]{{4,6}}\.acc[_-][a-z0-9-]{{10,32}}\.[A-Za-z0-9+/_=-]{{30,}}",
            "gitleaks authress-service-client-access-key",
        )
        for kind in ("sc", "ext", "scauth", "authress")
    ],
    # messages and payments
    (
        "app_usr-",
        r"APP_USR-[0-9]{10,}-[0-9]{6}-[0-9a-f]{32}-[0-9]+",
        "mercadopago.com/developers: access tokens",
    ),
    (
        "pdl_",
        r"pdl_(?:live|sdbx)_apikey_[a-z0-9]{26}_[A-Za-z0-9]{22}_[A-Za-z0-9]{3}",
        "developer.paddle.com: API keys",
    ),
    *[
        (f"polar_{kind}_", rf"polar_{kind}_{WORD}{{30,}}", "polar.sh/docs: access tokens", 53)
        for kind in ("oat", "pat", "at")
    ],
    ("secret-live-", r"secret-live-[A-Za-z0-9_=-]{24,}", "stytch.com/docs: project secrets", 48),
    ("secret-test-", r"secret-test-[A-Za-z0-9_=-]{24,}", "stytch.com/docs: project secrets", 48),
    ("xox", r"xox[abcdeoprs](?:-|\.xox[bp]-)[A-Za-z0-9%-]{8,}", "gitleaks slack-bot-token"),
    ("xapp-", r"xapp-[A-Za-z0-9-]{8,}", "gitleaks slack-app-token"),
    (":a", r"[0-9]{8,10}(:A[A-Za-z0-9_-]{30,36})", "gitleaks telegram-bot-api-token", 36),
    *[  # the number of a user in base64, a time, a signature
        (
            number.lower(),
            rf"{number}{TAIL}{{18,24}}\.{TAIL}{{6}}\.{TAIL}{{27,40}}",
            "detect-secrets discord",
        )
        for number in (
            *[f"{first}{third}" for first in ("MT", "Nz") for third in "AEIMQUYcgk"],
            *[f"OD{third}{fourth}" for third in "AEIMQUYcgk" for fourth in "wxyz012345"],
        )
    ],
    *[(f"sk{digit}", r"SK[0-9a-f]{32}", "gitleaks twilio-api-key") for digit in "0123456789abcdef"],
    ("sg.", rf"SG\.{TAIL}{{12,}}\.{TAIL}{{12,}}", "gitleaks sendgrid-api-token", 69),
    ("key-", r"key-[0-9a-f]{32}", "gitleaks mailgun-private-api-token"),
    *[
        (f"-us{digit}", r"[0-9a-f]{32}-us[0-9]{1,2}", "gitleaks mailchimp-api-key")
        for digit in range(1, 10)
    ],
    ("xkeysib-", r"xkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}", "gitleaks sendinblue-api-token"),
    ("xsmtpsib-", r"xsmtpsib-[a-f0-9]{64}-[A-Za-z0-9]{16}", "developers.brevo.com: SMTP keys"),
    ("re_", rf"re_{WORD}{{8}}_{WORD}{{24}}", "resend.com/docs: API keys", 36),
    *[
        (
            f"k_{kind}_",
            rf"[sr]k_{kind}_(?:{TAIL}{{32,}}|{WORD}{{8,}})",
            "gitleaks stripe-access-token",
            32,
        )
        for kind in ("live", "test", "prod")
    ],
    ("pi_", rf"pi_{WORD}{{24}}_secret_{WORD}{{25}}", "trufflehog stripepaymentintent", 60),
    ("whsec_", r"whsec_[0-9A-Za-z+/=]{12,}", "docs.stripe.com/webhooks: signing secrets", 38),
    *[
        (kind, rf"{kind}{TAIL}{{24,}}(?:\.[a-z]{{2}})?", "docs.svix.com: API keys")
        for kind in ("testsk_", "livesk_")
    ],
    ("sq0", rf"sq0[a-z]{{3}}-{TAIL}{{20,}}", "gitleaks square-access-token", 29),
    (
        "eaaa",
        r"EAAA(?!A)[A-Za-z0-9_-]{60}(?![A-Za-z0-9-]|_[\w-])",
        "gitleaks square-access-token",
        64,
    ),
    ("shp", r"shp(?:at|ca|pa|ss)_[0-9A-Za-z]{16,}", "gitleaks shopify-access-token", 38),
    ("eaacedeose0cba", r"EAACEdEose0cBA[0-9A-Za-z]{16,}", "detect-secrets; gitleaks facebook"),
    *[
        (
            f"eaa{kind}",
            rf"(?<![+/])EAA{kind.upper()}{DIGIT}[0-9A-Za-z]{{80,}}(?![+/=])",  # no base64
            "gitleaks facebook-page-access-token; developers.facebook.com: access tokens",
        )
        for kind in "bcdefghijklmnopqrstuvwxyz"
    ],
    ("duffel_", rf"duffel_(?:test|live)_{TAIL}{{30,}}", "gitleaks duffel-api-token", 55),
    ("ezak", rf"EZAK{WORD}{{40,}}", "gitleaks easypost-api-token"),
    ("eztk", rf"EZTK{WORD}{{40,}}", "gitleaks easypost-test-api-token"),
    ("flwseck", r"FLWSECK(?:_TEST)?-[0-9a-zA-Z]{12,32}(?:-X)?", "gitleaks flutterwave-secret-key"),
    ("rzp_", r"rzp_(?:live|test)_[A-Za-z0-9]{14}", "trufflehog razorpay", 23),
    ("shippo_", r"shippo_(?:live|test)_[a-fA-F0-9]{40}", "gitleaks shippo-api-token"),
    ("access-", rf"access-(?:sandbox|development|production)-{UUID}", "gitleaks plaid-api-token"),
    (
        "access_token$",
        r"access_token\$(?:production|sandbox)\$[0-9a-z]{16}\$[0-9a-f]{32}",
        "trufflehog: Braintree, PayPal",
    ),
    ("secret-token:", r"secret-token:([A-Za-z0-9_.%-]{24,})", "rfc-editor.org/rfc/rfc8959", 30),
    ("ramp_sec_", rf"ramp_sec_{WORD}{{48}}", "trufflehog ramp", 57),
    # documents and data
    ("lin_", rf"lin_(?:api|oauth)_{WORD}{{16,}}", "gitleaks linear-api-key", 48),
    ("ntn_", rf"ntn_{WORD}{{16,}}", "gitleaks notion-api-token"),
    ("secret_", rf"secret_{WORD}{{43}}(?![A-Za-z0-9])", "trufflehog notion", 50),
    ("pmak-", r"PMAK-[A-Za-z0-9-]{16,}", "gitleaks postman-api-token"),
    ("pat", rf"pat{WORD}{{14}}\.[a-f0-9]{{64}}", "gitleaks airtable-personnal-access-token"),
    *[
        (f"pat-{region}", rf"pat-{region}[0-9]-{UUID}", "trufflehog hubspotapikey")
        for region in ("na", "eu", "ap")
    ],
    ("cfpat-", rf"CFPAT-{TAIL}{{40,}}", "trufflehog contentfulpersonalaccesstoken", 49),
    ("tfp_", r"tfp_[A-Za-z0-9_.=-]{40,}", "gitleaks typeform-api-token", 48),
    ("p8e-", r"p8e-[a-z0-9]{32}", "gitleaks adobe-client-secret", 36),
    ("plak", r"PLAK[0-9a-f]{32}", "trufflehog planetlabs"),
    ("fio-u-", rf"fio-u-{TAIL}{{64}}", "gitleaks frameio-api-token", 70),
    ("s-s4t2", r"s-s4t2(?:ud|af)-[0-9a-f]{64}", "gitleaks intra42-client-secret"),
    ("_mmk", rf"{WORD}{{6}}_{WORD}{{29}}_mmk", "gitleaks maxmind-license-key", 40),
    ("sm_", r"sm_(?:aat|pat|sat)_[A-Za-z0-9]{16}", "gitleaks settlemint-personal-access-token"),
    ("sk.eyj", rf"sk\.eyJ{TAIL}{{40,}}\.{TAIL}{{22}}", "docs.mapbox.com: secret tokens"),
    ("sl.", rf"sl\.(?:u\.)?{TAIL}{{100,}}", "gitleaks dropbox-short-lived-api-token"),
    *[
        (f"pk_{digit}", r"pk_[0-9]{7,9}_[0-9A-Z]{32}", "trufflehog clickup")
        for digit in range(1, 10)
    ],
    *[
        (
            f"{kind}/1",
            rf"{kind}/[0-9]{{10,20}}(?:/[0-9]{{10,20}})?:[0-9a-f]{{32}}",
            "developers.asana.com: personal access tokens",
        )
        for kind in "012"
    ],
    ("live_", r"live_[0-9a-f]{35}", "gitleaks lob-api-key"),
    ("live_", rf"live_{DIGIT}{TAIL}{{40}}", "gitleaks gocardless-api-token"),
    ("aio_", rf"aio_{WORD}{{28}}", "gitleaks adafruit-api-key; io.adafruit.com", 32),
    # of any service: a web token, "-----BEGIN " in base64 (not of a certificate), crypt(5)
    (
        "eyj",
        rf"eyJ{TAIL}{{8,}}\.(?:eyJ{TAIL}{{6,}}|{TAIL}*\.{TAIL}{{8,}}\.{TAIL}+)\.{TAIL}{{6,}}",
        "rfc-editor.org/rfc/rfc7519",
    ),
    ("ls0tls1crudjti", r"LS0tLS1CRUdJTi(?!BD)[A-Za-z0-9+/=_-]{20,}", "rfc-editor.org/rfc/rfc7468"),
    *[
        (f"${kind}$", rf"\${kind}\$[A-Za-z0-9./=,$+-]{{22,}}", "manpages.debian.org: crypt(5)")
        for kind in ("1", "5", "6", "7", "y", "2a", "2b", "2y", "apr1", "argon2i", "argon2id")
    ],
)

# Secrets by what is around them. The last group is hidden, or the whole match.
_PEM_LINE = r"(?:\s|\\+[nr])"
_KEY_BLOCK = (
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
    rf"(?={_PEM_LINE}*[A-Za-z0-9+/]{{4}})"  # the line alone is no key
    rf"(?:[A-Za-z0-9+/=:,.]|{_PEM_LINE}|-(?!----))*"
    r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)?"
)
_QUOTE = r"\\*[\"'`]"
_QUOTED = r"\\*[\"'`]?"
PLACES = {
    "private key-----": _KEY_BLOCK,
    "private key block-----": _KEY_BLOCK,
    "hooks.slack.com/": r"hooks\.slack\.com/[a-z]+/([A-Za-z0-9/_-]{8,})",
    "/webhooks/": rf"/webhooks/[0-9]{{10,}}/({TAIL}{{20,}})",  # Discord
    "/webhookb2/": r"/webhookb2/([A-Za-z0-9@/_-]{16,})",  # Teams
    "hooks.zapier.com/": r"hooks\.zapier\.com/hooks/catch/[0-9]+/([A-Za-z0-9]{6,})",
    "/bot": rf"/bot[0-9]{{6,}}:({TAIL}{{12,}})",  # Telegram
    # a password in a URL, but not the second host of `//one:80,user:x@two`
    "://": rf"://(?:[^\s:/@\"'\\<>\[\]]*:(?![0-9]+,)|(?<=https://)(?={DIGIT}{TAIL}{{20,}}@))([^\s/\"'\\`<>]+|(?![0-9]+/)[A-Za-z0-9+/]{{20,}}={{0,2}})@",
    "bearer": r"(?i:bearer)[ \t]+(?=\S*[0-9]|[A-Za-z]{20})([A-Za-z0-9._~+/=-]{8,})",
    "ssws ": r"(?i:ssws)[ \t]+([A-Za-z0-9_=-]{20,})",  # Okta
    "signature=": r"(?i:signature)=(?=[A-Za-z%+/=_~-]*[0-9])([A-Za-z0-9%+/=_~-]{16,})",
    "response=\\": r"(?i:response)=\\*\"([0-9a-f]{32,})",  # a digest of a password
    'response="': r"(?i:response)=\"([0-9a-f]{32,})",
    "insecure-api-key.": r"insecure-api-key\.([A-Za-z0-9._~+/=-]{8,})",  # a WebSocket of OpenAI
    # SQL; in small letters it is also prose
    "identified by": r"(?:IDENTIFIED BY|(?i:identified by)(?=\s+\\*[\"'][^\s\"'\\]*[0-9]))"
    r"\s+\\*[\"']([^\s\"'\\]{4,})",
    "secretstr(": rf"(?i:secretstr)\({_QUOTE}([^\s\"'\\*]{{6,}})",
    "securestring": rf"(?i:securestring)\s+{_QUOTE}([^\s\"'\\]{{6,}})",
    # command lines
    **{
        f"{option} ": rf"(?<=\s){option} \\*[\"']?[A-Za-z0-9@._-]+:(?![0-9]+\b)([^\s\"'\\]{{3,}})"
        for option in ("-u", "--user", "--proxy-user")
    },
    **{
        f"{option}=": rf"(?<=\s){option}=\\*[\"']?[A-Za-z0-9@._-]+:(?![0-9]+\b)([^\s\"'\\]{{3,}})"
        for option in ("--user", "--proxy-user")
    },
    "unzip ": rf"unzip\b[^\n\\|;&]{{0,200}}?\s-P ?{_QUOTED}([^\s\"'\\]{{4,}})",
    "7z ": rf"7z [a-z]\b[^\n\\|;&]{{0,200}}?\s-p{_QUOTED}([^\s\"'\\]{{4,}})",
    "htpasswd ": r"htpasswd(?=[^\n]{0,100}\s-[A-Za-z]*b)(?:\s+-[A-Za-z]+)+(?:\s+[^\s\"'\\]+){2}\s+"
    rf"{_QUOTED}([^\s\"'\\]{{4,}})",
    **{
        f"{option} ": rf"{option} {_QUOTED}([^\s\"'\\]{{4,}})"
        for option in ("-storepass", "-keypass", "requirepass", "masterauth")
    },
    "set password": r"(?i:set password)\b[^\n=]{0,80}=\s*(?:(?i:password)\()?"
    rf"{_QUOTE}([^\s\"'\\]{{4,}})",
    "basicauth(": rf"(?i:basicauth)\(\s*(?:\w+=)?{_QUOTE}[^\"'\\]{{1,60}}{_QUOTE}\s*,\s*(?:\w+=)?"
    rf"{_QUOTE}([^\s\"'\\]{{4,}}){_QUOTE}",
    # kubectl and helm
    **{
        f"{option}{after}": rf"{option}{after}{_QUOTED}(?:[^\s\"'\\=]+=[^\s\"'\\,]*,)*[\w.\[\]-]*"
        r"(?i:passw(?:or)?d|secret|token|api[-_.]?key)=([^\s\"'\\,]{4,})"
        for option in ("--from-literal", "--set", "--set-string")
        for after in " ="
    },
    "sshpass": rf"sshpass\s+-p\s*{_QUOTED}([^\s\"'\\]{{3,}})",
    "docker login": rf"docker login\b[^\n\\|;&]{{0,200}}?\s-p[ =]?{_QUOTED}([^\s\"'\\]{{3,}})",
    "mysql": r"mysql(?:dump|admin)?\b[^\n\\|;&]{0,200}?\s-p([^\s\"'\\]{4,})",
    "redis-cli": rf"redis-cli\b[^\n\\|;&]{{0,200}}?\s-a[ =]{_QUOTED}([^\s\"'\\]{{4,}})",
    **{
        f"-pass{kind} pass:": rf"-pass{kind} pass:([^\s\"'\\]{{4,}})"  # openssl
        for kind in ("", "in", "out")
    },
    # the password of the command after a pipe
    "echo ": rf"echo (?:-n )?{_QUOTED}([^\s\"'\\$`]{{4,}}){_QUOTED}\s*\|"
    r"[^\n|]{0,200}?(?:--password-stdin|\bsudo -S)",
    "az login": rf"az login\b[^\n\\|;&]{{0,200}}?\s-p[ =]{_QUOTED}([^\s\"'\\]{{4,}})",
    "put-parameter": r"put-parameter\b(?=[^\n]{0,300}SecureString)[^\n\\|;&]{0,200}?"
    rf"--value[ =]{_QUOTED}([^\s\"'\\]{{4,}})",
    **{  # the first of a list
        name: rf"(?i:{name}){_QUOTED}\s*[:=]\s*\[\s*{_QUOTE}([^\s\"'\\]{{8,}})"
        for name in ("apikeys", "api_keys")
    },
    "::add-mask::": r"::add-mask::([^\s\"'\\]{4,})",  # of GitHub Actions
    ":5432:": r":5432:[^\s:]{1,60}:[^\s:]{1,60}:([^\s:\"'\\]{4,})",  # .pgpass
    "machine ": r"machine\s+\S+\s+login\s+\S+\s+password\s+([^\s\"'\\]{3,})",  # .netrc
}
# The same, where a value must also look like a secret.
LOOSE_PLACES = {
    "bindpw": rf"bindpw[ \t=:]+{_QUOTED}([^\s\"'\\]{{4,}})",  # LDAP
    ".login(": rf"\.login\(\s*(?:\w+=)?{_QUOTE}[^\"'\\]{{1,60}}{_QUOTE}\s*,\s*(?:\w+=)?"
    rf"{_QUOTE}([^\s\"'\\]{{6,}}){_QUOTE}",
    **{
        f"{option} ": rf"(?<=\s){option} {_QUOTED}[\w.-]+=([^\s\"';\\]{{8,}})"  # cookies of curl
        for option in ("-b", "--cookie")
    },
}
# A line of a log: `user=ada token=… ip=10.0.0.1`. No code has a value between such pairs.
LOG_PLACES = {
    f" {name}=": rf" (?i:{name})=([^\s\"'\\,;(){{}}<>\[\]]{{6,}})(?=[ \t]+[A-Za-z_][\w.-]*=[^\s=])"
    for name in (
        "password",
        "passwd",
        "pwd",
        "secret",
        "token",
        "access_token",
        "api_key",
        "apikey",
    )
}
LOOKBEHIND = {
    "jqqj9": 52,
    "+ast": 76,
    "acdb": 76,
    "azfu": 44,
    "azse": 42,
    "+acr": 42,
    "azca": 33,
    "azdo": 76,
    "k_live_": 1,
    "k_test_": 1,
    "k_prod_": 1,
    ":a": 10,
    "q~": 4,
    ".atlasv1.": 14,
    "_mmk": 36,
    "private key-----": 40,
    "private key block-----": 40,
    **{f"-us{digit}": 32 for digit in range(1, 10)},
}
