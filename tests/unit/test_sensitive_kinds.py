"""Tokens of more issuers, values in more notations and languages, and what only looks like them."""

from __future__ import annotations

import random
import string

import pytest

from palimpsest.streams.sensitive.detection import redacted

ALPHANUMERIC = string.digits + string.ascii_lowercase + string.ascii_uppercase
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + "234567"
RANDOM = random.Random(7)


def some(count: int, alphabet: str = ALPHANUMERIC) -> str:
    while True:
        made = "".join(RANDOM.choice(alphabet) for _ in range(count))
        if any(map(str.isdigit, made)) and any(map(str.isalpha, made)):
            return made


TOKENS = {
    "google": "AIza" + some(35),
    "discord": "MTk4" + some(20) + ".Cl2FMQ." + some(27),
    "sentry": "sntrys_" + some(60) + "_" + some(43),
    "doppler": "dp.pt." + some(43),
    "planetscale": "pscale_tkn_" + some(43),
    "fly": "FlyV1 fm2_" + some(100),
    "grafana": "glsa_" + some(32) + "_" + some(8, HEX),
    "figma": "figd_" + some(40),
    "airtable": "pat" + some(14) + "." + some(64, HEX),
    "supabase": "sbp_" + some(40, HEX),
    "terraform": some(14) + ".atlasv1." + some(67),
    "rubygems": "rubygems_" + some(48, HEX),
    "adafruit": "aio_" + some(28),
    "easypost": "EZAK" + some(54),
    "brevo": "xkeysib-" + some(64, HEX) + "-" + some(16),
    "dynatrace": "dt0c01." + some(24, UPPER) + "." + some(64, UPPER),
    "heroku": "HRKU-" + some(60),
    "prefect": "pnu_" + some(36),
    "pulumi": "pul-" + some(40, HEX),
    "1password": "ops_eyJ" + some(250),
    "vercel": "vcp_" + some(56),
    "tailscale": "tskey-auth-" + some(16) + "-" + some(32),
    "asana": "1/1200000000000000:" + some(32, HEX),
    "contentful": "CFPAT-" + some(43),
    "harness": "pat." + some(22) + "." + some(24, HEX) + "." + some(20),
    "mapbox": "sk.eyJ1" + some(60) + "." + some(22),
    "notion": "secret_" + some(43),
    "facebook": "EAACEdEose0cBA" + some(80),
    "aws session": "FwoGZXIvYXdzE" + some(120),
    "langsmith": "lsv2_pt_" + some(32, HEX) + "_" + some(10, HEX),
    "aiven": "AVNS_" + some(19),
    "resend": "re_" + some(8) + "_" + some(24),
    "elevenlabs": "sk_" + some(48, HEX),
    "pinecone": "pcsk_" + some(6) + "_" + some(63),
    "buildkite": "bkua_" + some(40, HEX),
    "circleci": "CCIPAT_" + some(22) + "_" + some(40, HEX),
    "artifactory": "AKCp2" + some(69),
    "sonar": "sqp_" + some(40, HEX),
    "apify": "apify_api_" + some(36),
    "azure": some(3) + "8Q~" + some(34),
}
GLUED = (
    "{}",
    "prod_{}",
    "x{}",
    "9{}",
    "__{}__",
    "{}-old",
    "%22{}%22",
    "a\\n{}\\n",
    "\x1b[31m{}\x1b[0m",
)


@pytest.mark.parametrize("issuer", TOKENS)
def test_tokens_of_more_issuers_are_found_whatever_they_are_glued_to(issuer: str) -> None:
    token = TOKENS[issuer]
    assert [around for around in GLUED if token[-16:] in redacted(around.format(token))] == []


PASSWORD, KEY = "Tr0ub4dor3xQ9z", "9fK2mQ7xLp4vZt8RwYb3"
NOTATIONS = (
    *(f"jdbc:oracle:thin:scott/{PASSWORD}@h:1521:x", f"htpasswd -b f u {PASSWORD}"),
    *(f"net use z: \\\\s\\x /user:bob {PASSWORD}", f'echo "{PASSWORD}" | sudo -S ls'),
    *(f"echo root:{PASSWORD} | chpasswd", f'["password"]=>\n string(12) "{PASSWORD}"'),
    *(f'let password: &str = "{PASSWORD}";', f'password: string = "{PASSWORD}";'),
    *(f'define("DB_PASSWORD", "{PASSWORD}");', f"define( 'DB_PASSWORD', '{PASSWORD}' );"),
    *(f'setPassword("{PASSWORD}")', f'.password("{PASSWORD}")', f'"password","{PASSWORD}"'),
    *(f"IDENTIFIED BY '{PASSWORD}'", f"Username\nbob\nPassword\n{PASSWORD}\nURL"),
    *(f"password: !!str {PASSWORD}", f"password: &a {PASSWORD}", f"**Password:** `{PASSWORD}`"),
    *(f'password="""{PASSWORD}"""', f"WIFI:T:WPA;S:home;P:{PASSWORD};;"),
    *(f'ConvertTo-SecureString "{PASSWORD}" -AsPlainText', f"psw: {PASSWORD}"),
    *(f"https://x.y/c?sv=2020&sig={KEY}%3D&se=2025", f"x?a=1&X-Amz-Signature={KEY}{KEY}"),
    *(f"//registry.npmjs.org/:_authToken={KEY}", "_auth=dXNlcjpUcjB1YjRkb3IzeFE5eg=="),
    *(f"Ocp-Apim-Subscription-Key: {KEY}", f"STRIPE_KEY={KEY}", f'"apiToken": "{KEY}"'),
    *(f'tokenValue="{KEY}"', f"clientSecret: {KEY}", f"consumerSecret={KEY}"),
    "2FA code 482 913",
)
PASSWORD_WORDS = (
    *("hasło", "heslo", "şifre", "lösenord", "adgangskode", "passord", "jelszó", "salasana"),
    *("parolă", "κωδικός", "mật khẩu", "รหัสผ่าน", "كلمة السر", "كلمة المرور", "סיסמה", "पासवर्ड"),
    *("kata sandi", "лозинка", "geslo"),
)


@pytest.mark.parametrize("text", NOTATIONS)
def test_values_in_the_notations_of_programs_are_found(text: str) -> None:
    left = redacted(text)
    assert not any(each in left for each in (PASSWORD, KEY, "dXNlcjpUcjB1", "482 913"))


@pytest.mark.parametrize("word", PASSWORD_WORDS)
def test_passwords_are_found_by_their_name_in_more_languages(word: str) -> None:
    for name in (word, word.capitalize()):
        assert PASSWORD not in redacted(f"{name}: {PASSWORD}")


POSTAL = (
    *(
        "Pincode: 682001",
        "PIN-560001",
        "pin code - 700091 Kolkata",
        "PIN CODE: 605001 (Puducherry)",
    ),
    *('{"pincode": "560001"}', '{"pincode": 560001}', "<pincode>560001</pincode>"),
    *("the postal PIN for our office is 500081", "Our village pin is 627757"),
)
ALIKE = (
    *("Pass: 12, Fail: 3", "tests pass: 812", "git@github.com:a/b.git"),
    *("ERC-20 token 0xdAC17F958D2ee523a2206206994597C13D831ec7", "PRIMARY_KEY=order_id2024"),
    *('["email", "password", "name"]', "I forgot the password\nand 2 of 3 tries are left"),
    *("password: string", "password: str | None", "tokens: 4096", "pat.doe", "re_run_2024_results"),
    *("sk_buff_2024", "vcp_", "pul-request", "dp.pt", "secret_santa_2024", "total_tokens: 123456"),
    *("data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUgAAAAUA" * 20, "SORT_KEY=created2024at"),
    "image@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
)


@pytest.mark.parametrize("text", [*POSTAL, *ALIKE])
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize("text", ["My pin code is 482913", "card pin code: 560001", "PIN: 4821"])
def test_a_pin_that_is_no_postal_code_is_found(text: str) -> None:
    assert "[REDACTED:password]" in redacted(text)
