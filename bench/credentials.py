"""Tests which credentials are refused, and that harmless lines are not: `python -m bench.credentials [--json]
[--show]`.

Secrets are random, in the forms that their issuers document, and passwords have labels as people write them; none
stands in this file. The harmless lines use the same words. Half of each were looked at while the rules were first
written (`tuned`), the others when they were revised (`held out`). The second set (`shapes`) was written before its
rules: vendors' bare tokens, structured files, sentences, and memories with the label in one field and the value in
another. `--show` prints the failures of a part.
"""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.credential_shapes import (
    BASE64,
    DIGITS,
    FILES,
    HEX,
    LOWER,
    NAMED,
    PASSWORD_WORDS,
    SAID,
    SPLIT,
    TOKENS,
    UPPER,
    WORD,
    chance,
    named,
    some,
)
from remembrancer.memory.credentials import find_credential, refuse_credentials
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.writes import TagMemory

LINES: Final = Path(__file__).parent / "innocent_lines.txt"
SHAPED_LINES: Final = Path(__file__).parent / "innocent_shapes.txt"


def password() -> str:
    """Return a password as people choose them: a word or two with digits and symbols."""
    made = chance.choice(PASSWORD_WORDS) + chance.choice(("", "-", "_", "!")) + some(chance.randint(2, 4), DIGITS)
    return made + chance.choice(("", "!", "?x", "$", chance.choice(PASSWORD_WORDS)))


def jwt() -> str:
    """Return a JSON Web Token."""
    parts = (b'{"alg":"HS256","typ":"JWT"}', json.dumps({"sub": some(8)}).encode(), some(32).encode())
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


SECRETS: Final[tuple[Callable[[], str], ...]] = (
    # key formats
    lambda: f"-----BEGIN OPENSSH PRIVATE KEY-----\n{some(70, BASE64)}",
    lambda: f"-----BEGIN RSA PRIVATE KEY-----\n{some(64, BASE64)}",
    lambda: f"-----BEGIN EC PRIVATE KEY-----\n{some(64, BASE64)}",
    lambda: f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{some(64, BASE64)}",
    lambda: "PuTTY-User-Key-File-3: ssh-ed25519",
    lambda: "AGE-SECRET-KEY-1" + some(58, UPPER + DIGITS),
    lambda: "AKIA" + some(16, UPPER + "234567"),
    lambda: "ASIA" + some(16, UPPER + "234567"),
    lambda: "aws_secret_access_key = " + some(40, BASE64),
    lambda: "AccountKey=" + some(86, BASE64) + "==",
    lambda: "https://acct.blob.core.windows.net/c?sv=2024-11-04&sp=rl&sig=" + some(43, WORD) + "%3D",
    lambda: "ghp_" + some(36),
    lambda: "gho_" + some(36),
    lambda: "ghs_" + some(36),
    lambda: "github_pat_" + some(22) + "_" + some(59),
    lambda: "glpat-" + some(20),
    lambda: "glrt-" + some(20),
    lambda: "gldt-" + some(20),
    lambda: f"xoxb-{some(12, DIGITS)}-{some(13, DIGITS)}-{some(24)}",
    lambda: f"xoxp-{some(12, DIGITS)}-{some(12, DIGITS)}-{some(12, DIGITS)}-{some(32, HEX)}",
    lambda: f"xapp-1-A{some(10, UPPER)}-{some(13, DIGITS)}-{some(64, HEX)}",
    lambda: f"https://hooks.slack.com/services/T{some(10, UPPER)}/B{some(10, UPPER)}/{some(24)}",
    lambda: f"https://discord.com/api/webhooks/{some(18, DIGITS)}/{some(68)}",
    lambda: f"{some(10, DIGITS)}:AA{some(33)}",
    lambda: "SK" + some(32, HEX),
    lambda: f"SG.{some(22)}.{some(43)}",
    lambda: some(32, HEX) + "-us14",
    lambda: "sk_live_" + some(24),
    lambda: "rk_live_" + some(24),
    lambda: "sk_test_" + some(99),
    lambda: "whsec_" + some(32),
    lambda: "sq0csp-" + some(43),
    lambda: "shpat_" + some(32, HEX),
    lambda: "sk-ant-api03-" + some(93) + "AA",
    lambda: "sk-proj-" + some(74) + "T3BlbkFJ" + some(74),
    lambda: "sk-" + some(48),
    lambda: "sk-or-v1-" + some(64, HEX),
    lambda: "gsk_" + some(52),
    lambda: "AIza" + some(35),
    lambda: "ya29." + some(120),
    lambda: "GOCSPX-" + some(28),
    lambda: "hf_" + some(34, UPPER + LOWER),
    lambda: "npm_" + some(36),
    lambda: "//registry.npmjs.org/:_authToken=" + some(36),
    lambda: "pypi-AgEIcHlwaS5vcmc" + some(90),
    lambda: "dckr_pat_" + some(27),
    lambda: "ATATT3xFfGF0" + some(180) + "=" + some(8, UPPER + DIGITS),
    lambda: f"glsa_{some(32)}_{some(8, HEX)}",
    lambda: "glc_" + some(80, BASE64),
    lambda: "dop_v1_" + some(64, HEX),
    lambda: "hvs." + some(90),
    lambda: "dapi" + some(32, HEX),
    lambda: f"tskey-auth-{some(12)}-{some(32)}",
    lambda: "sntryu_" + some(64, HEX),
    lambda: "PMAK-" + some(24, HEX) + "-" + some(34, HEX),
    lambda: "lin_api_" + some(40),
    lambda: "NRAK-" + some(27, UPPER + DIGITS),
    lambda: "dp.pt." + some(43),
    lambda: "pul-" + some(40, HEX),
    lambda: "rubygems_" + some(48, HEX),
    lambda: "EZAK" + some(54),
    lambda: "ops_eyJ" + some(260),
    lambda: "$2b$12$" + some(53, WORD + "./"),
    lambda: "$argon2id$v=19$m=65536,t=3,p=4$" + some(22, BASE64) + "$" + some(43, BASE64),
    lambda: "root:$6$" + some(16) + "$" + some(86, WORD + "./") + ":19000:0:99999:7:::",
    jwt,
    lambda: "Authorization: Bearer " + some(40),
    lambda: "Authorization: Basic " + base64.b64encode(f"app:{some(9)}".encode()).decode(),
    lambda: "curl -H 'Authorization: token " + some(40, HEX) + "x9' https://api.example.net",
    # files and commands
    lambda: f"machine api.example.net login bot password {some(12)}",
    lambda: f"default login anonymous password {password()}",
    lambda: f"db.internal:5432:orders:app:{password()}7",
    lambda: f"*:*:*:postgres:{password()}",
    lambda: f"curl -u admin:{password()} https://host/x",
    lambda: f"curl --user bot:{some(20)} https://host/x",
    lambda: f"mysql -h db -u root -p{password()} orders",
    lambda: f"sshpass -p {password()} ssh host",
    lambda: f"postgres://app:{some(10)}@db.internal/orders",
    lambda: f"redis://:{some(16)}@cache:6379/0",
    lambda: f"mongodb+srv://root:{password()}@cluster0.x.mongodb.net",
    lambda: f"DB_PASSWORD={password()}",
    lambda: f"POSTGRES_PASSWORD={some(8, LOWER)}",
    lambda: f'export SMTP_PASS="{password()}"',
    lambda: f"REDIS_PWD={some(10)}",
    lambda: f"SECRET_KEY = '{some(50)}'",
    lambda: f'"client_secret": "{some(40)}"',
    lambda: f"api_key: {some(24)}",
    lambda: f"API token for CI: {some(10)}!7aB",
    lambda: "ghp_\u200b" + some(36),
    lambda: "sk-\u2060" + some(48),
    # labels and values, as people write them
    lambda: f"password for staging db: {password()}",
    lambda: f"The admin password is {password()}",
    lambda: f"the wifi password is now {password()}",
    lambda: f"passwd: {password()}",
    lambda: f"pwd = {password()}",
    lambda: f"pass phrase: {password()}x!9",
    lambda: f"passphrase for the backup key: {password()}#7",
    lambda: f"passcode: {some(3, LOWER)}{some(4, DIGITS)}",
    lambda: f"root pw: {password()}",
    lambda: f"The PIN for the safe is {some(4, DIGITS)}",
    lambda: f"PIN: {some(6, DIGITS)}",
    lambda: f"PIN code of the door: {some(4, DIGITS)}",
    lambda: f"Das Passwort für den Testserver lautet {password()}",
    lambda: f"Kennwort: {password()}",
    lambda: f"Passwort ist jetzt {password()}",
    lambda: f"mot de passe du serveur : {password()}",
    lambda: f"mdp: {password()}",
    lambda: f"La contraseña es {password()}",
    lambda: f"contraseña para staging: {password()}",
    lambda: f"senha do banco: {password()}",
    lambda: f"A senha é {password()}",
    lambda: f"la password di staging è {password()}",
    lambda: f"пароль: {password()}",
    lambda: f"Пароль от базы: {password()}",
    lambda: f"密码: {password()}",
    lambda: f"数据库密码是 {password()}",
    lambda: f"パスワードは {password()}",
    lambda: f"비밀번호: {password()}",
    lambda: f"hasło do bazy: {password()}",
    lambda: f"wachtwoord voor staging: {password()}",
    lambda: f"lösenord: {password()}",
    lambda: f"salasana: {password()}",
    lambda: f"şifre: {password()}",
)


def is_refused(fields: dict[str, str]) -> bool:
    """True if a memory with these fields would be refused."""
    try:
        refuse_credentials(TagMemory("", (), ()), list(fields.items()))
    except InvalidInput:
        return True
    return False


def figures_of(secrets: Sequence[dict[str, str]], innocent: Sequence[str], *, show: bool) -> dict[str, int]:
    missed = [fields for fields in secrets if not is_refused(fields)]
    refused = [(find_credential(line), line) for line in innocent if find_credential(line) is not None]
    if show:
        for each in (*missed, *refused):
            print(each)
    return {
        "secrets": len(secrets),
        "found": len(secrets) - len(missed),
        "innocent": len(innocent),
        "refused": len(refused),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--show", metavar="PART", help="one of the parts that are printed, as 'shapes, tuned'")
    arguments = parser.parse_args()
    first = [{"content": f"For later:\n{make()}"} for make in SECRETS]
    shaped = [{"content": f"For later:\n{make()}"} for make in (*TOKENS, *FILES, *SAID)] + [make() for make in SPLIT]
    shaped += [{"content": f"For later:\n{named(each)}"} for each in NAMED]
    figures = {}
    for sort, secrets, lines in (("first set", first, LINES), ("shapes", shaped, SHAPED_LINES)):
        innocent = [line.replace("\\n", "\n") for line in lines.read_text().splitlines() if line]
        for part, start in (("tuned", 0), ("held out", 1)):
            name = f"{sort}, {part}"
            figures[name] = figures_of(secrets[start::2], innocent[start::2], show=arguments.show == name)
    if arguments.json:
        print(json.dumps(figures))
        return
    for part, its in figures.items():
        print(
            f"{part}: {its['found']} of {its['secrets']} secrets found, "
            f"{its['refused']} of {its['innocent']} innocent lines refused"
        )


if __name__ == "__main__":
    main()
