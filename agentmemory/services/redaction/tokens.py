"""Secrets that tell themselves: keys and tokens whose issuer gave them a prefix or a fixed shape."""

from __future__ import annotations

import re

from agentmemory.services.redaction import values
from agentmemory.services.redaction.rules import Rule, at_edge, rule

_END = r"(?![A-Za-z0-9_-])"

# Kind, prefixes, body. Nothing else holds these prefixes, so that they count in the middle of a word, too.
_DISTINCT: tuple[tuple[str, str, str], ...] = (
    ("anthropic_key", "sk-ant-", r"[A-Za-z0-9_-]{10,}"),
    ("openai_key", "sk-proj- sk-svcacct- sk-admin- sk-None-", r"[A-Za-z0-9_-]{16,}"),
    ("openrouter_key", "sk-or-", r"[A-Za-z0-9_-]{20,}"),
    ("langfuse_key", "sk-lf-", r"[0-9a-f-]{30,}"),
    ("langsmith_key", "lsv2_pt_ lsv2_sk_", r"[A-Za-z0-9_]{20,}"),
    ("nvidia_key", "nvapi-", r"[A-Za-z0-9_-]{20,}"),
    ("github_token", "github_pat_", r"[A-Za-z0-9_]{20,}"),
    ("gitlab_token", "glpat- gldt- glrt- glptt- glcbt- glsoat-", r"[A-Za-z0-9_.-]{16,}"),
    ("slack_token", "xoxb- xoxp- xoxa- xoxr- xoxs- xoxe- xoxc- xoxd- xoxe.xoxp- xoxe.xoxb-", r"[A-Za-z0-9%-]{10,}"),
    ("slack_token", "xapp-", r"\d-[A-Za-z0-9-]{10,}"),
    ("stripe_key", "sk_live_ sk_test_ rk_live_ rk_test_", r"[A-Za-z0-9]{10,}"),
    ("webhook_secret", "whsec_", r"[A-Za-z0-9+/=]{16,}"),
    ("pypi_token", "pypi-Ag", r"[A-Za-z0-9_-]{30,}"),
    ("digitalocean_token", "dop_v1_ doo_v1_ dor_v1_", r"[0-9a-f]{32,}"),
    ("shopify_token", "shpat_ shpca_ shppa_ shpss_", r"[0-9a-fA-F]{32}"),
    ("docker_token", "dckr_pat_", r"[A-Za-z0-9_-]{20,}"),
    ("sentry_token", "sntrys_ sntryu_", r"[A-Za-z0-9_+/=.-]{30,}"),
    ("supabase_key", "sb_secret_", r"[A-Za-z0-9_]{20,}"),
    ("linear_key", "lin_api_ lin_oauth_", r"[A-Za-z0-9]{30,}"),
    ("atlassian_token", "ATATT3", r"[A-Za-z0-9_=-]{40,}"),
    ("google_token", "GOCSPX-", r"[A-Za-z0-9_-]{20,}"),
    ("tailscale_key", "tskey-", r"[a-z]{3,12}-[A-Za-z0-9]{8,}-[A-Za-z0-9]{16,}"),
    ("age_key", "AGE-SECRET-KEY-1", r"[A-Z0-9]{50,}"),
    ("onepassword_token", "ops_eyJ", r"[A-Za-z0-9+/=_-]{60,}"),
)

# Words may end with these prefixes (`task-`), or base64 may hold them by chance: only where a word may begin.
_SHORT: tuple[tuple[str, str, str], ...] = (
    ("agentmemory_token", "amt_", r"[a-z0-9]{8}_[A-Za-z0-9_-]{32,}"),
    ("github_token", "ghp_ gho_ ghu_ ghs_ ghr_", r"[A-Za-z0-9]{20,}"),
    ("google_key", "AIza", r"[A-Za-z0-9_-]{35}" + _END),
    ("google_token", "ya29.", r"[A-Za-z0-9_-]{20,}"),
    ("aws_access_key", "AKIA ASIA ABIA ACCA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("huggingface_token", "hf_", r"[A-Za-z0-9]{20,}"),
    ("npm_token", "npm_", r"[A-Za-z0-9]{30,}"),
    ("xai_key", "xai-", r"[A-Za-z0-9_-]{20,}"),
    ("groq_key", "gsk_", r"[A-Za-z0-9]{20,}"),
    ("cerebras_key", "csk-", r"[A-Za-z0-9]{30,}"),
    ("perplexity_key", "pplx-", r"[A-Za-z0-9]{30,}"),
    ("tavily_key", "tvly-", r"[A-Za-z0-9-]{20,}"),
    ("replicate_token", "r8_", r"[A-Za-z0-9]{30,}"),
    ("sendgrid_key", "SG.", r"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{30,}"),
    ("resend_key", "re_", r"[A-Za-z0-9]{6,10}_[A-Za-z0-9]{20,}"),
    ("databricks_token", "dapi", r"[0-9a-f]{32}(?:-\d)?" + _END),
    ("vault_token", "hvs. hvb. hvr.", r"[A-Za-z0-9_-]{24,}"),
    ("notion_token", "ntn_ secret_", r"[A-Za-z0-9]{40,}"),
    ("figma_token", "figd_ figo_ figu_ figr_", r"[A-Za-z0-9_-]{20,}"),
    ("postman_key", "PMAK-", r"[0-9a-f]{20,}-[0-9a-f]{30,}"),
    ("supabase_key", "sbp_", r"[A-Za-z0-9]{36,}"),
    ("netlify_token", "nfp_", r"[A-Za-z0-9]{30,}"),
    ("fly_token", "fo1_ fm2_", r"[A-Za-z0-9_+/=-]{40,}"),
    ("cloudflare_token", "cfut_ cfat_ cfk_", r"[A-Za-z0-9_-]{30,}"),
    ("twilio_key", "SK", r"[0-9a-f]{32}" + _END),
    ("mailgun_key", "key-", r"[0-9a-f]{32}" + _END),
)


def _is_real(match: re.Match[str]) -> bool:
    """Not `sk-ant-xxxx…`, not `ghp_your_token_here`."""
    return not values.is_placeholder(match.group("body"))


def _is_generic_sk(match: re.Match[str]) -> bool:
    """Class names (`sk-estimator-doc-link`) begin with `sk-` too: a key has a long word of letters and digits."""
    body = match.group("body")
    words = re.split(r"[^A-Za-z0-9]", body)
    mixed = any(len(word) >= 10 and values.turns(word) for word in words)
    dotted = "." in body and len(body) >= 20 and values.classes(body) >= 3
    return _is_real(match) and (mixed or dotted or max(map(len, words)) >= 32)


def _prefixed() -> list[Rule]:
    written = [
        (kind, prefix, re.escape(prefix), body) for kind, prefixes, body in _DISTINCT for prefix in prefixes.split()
    ]
    written += [(kind, prefix, at_edge(prefix), body) for kind, prefixes, body in _SHORT for prefix in prefixes.split()]
    return [
        rule(kind, f"{head}(?P<body>{body})", prefix.lower(), judge=_is_real) for kind, prefix, head, body in written
    ]


def _generic(prefix: str) -> Rule:
    body = r"(?P<body>[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]{4,})+|[A-Za-z0-9_-]{16,})"
    return rule("api_key", at_edge(prefix) + body, prefix, judge=_is_generic_sk)


RULES: tuple[Rule, ...] = (
    *_prefixed(),
    _generic("sk-"),
    _generic("sk_"),
    rule(
        "jwt",
        at_edge("eyJ") + r"[A-Za-z0-9_-]{8,}+\.(?:eyJ[A-Za-z0-9_-]{6,}+(?:\.[A-Za-z0-9_-]*+)?"
        r"|[A-Za-z0-9_-]*+\.[A-Za-z0-9_-]++\.[A-Za-z0-9_-]++\.[A-Za-z0-9_-]++)",
        "eyj",
    ),
    # The part before the mark names the account and stays.
    rule("telegram_token", rf":AA(?<=\d{{8}}:AA)(?<=:AA)(?P<secret>[A-Za-z0-9_-]{{33}}){_END}", ":aa"),
    rule(
        "zhipu_key",
        rf"\.(?<=[0-9a-f]{{32}}\.)(?<![0-9a-f]{{33}}\.)(?P<body>(?P<secret>[A-Za-z0-9]{{16}})){_END}",
        ".",
        judge=lambda match: values.turns(match.group("secret")) > 0,
    ),
    rule(
        "slack_webhook",
        r"hooks\.slack(?:-gov)?\.com/(?P<secret>(?:services|workflows|triggers)/[\w/-]{20,})",
        "hooks.slack",
    ),
    rule("discord_webhook", r"/api/webhooks/(?P<secret>\d{10,}/[\w-]{20,})", "/api/webhooks/"),
    rule("teams_webhook", r"webhook\.office\.com/(?P<secret>webhookb2/[\w@/-]{30,})", "webhook.office"),
)
