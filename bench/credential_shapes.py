"""Random credentials in the forms that issuers and file formats document, for `bench.credentials`. Written before the
rules that find them; half of them were not looked at for the rules.

`SPLIT` has memories with the label in another field than the value.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable
from typing import Final

chance = random.Random(20261122)
UPPER, LOWER, DIGITS = string.ascii_uppercase, string.ascii_lowercase, string.digits
HEX, WORD, BASE64 = "0123456789abcdef", string.ascii_letters + DIGITS, string.ascii_letters + DIGITS + "+/"
BASE32 = UPPER + "234567"
PASSWORD_WORDS: Final = (
    *("frosch", "Sommer", "dragon", "hunter", "Blaubeere"),
    *("kestrel", "Maiglocke", "thunder", "cobalt", "Mistral"),
)
"""The words from which people make passwords."""


def some(length: int, alphabet: str = WORD) -> str:
    """Return a random text."""
    return "".join(chance.choices(alphabet, k=length))


def coded(text: str) -> str:
    """Return a random text in Base64."""
    return base64.b64encode(text.encode()).decode()


def uuid() -> str:
    """Return a random UUID."""
    return "-".join(some(length, HEX) for length in (8, 4, 4, 4, 12))


def chosen() -> str:
    """Return a password as people choose them."""
    return chance.choice(PASSWORD_WORDS) + chance.choice(("", "-", "_", "!")) + some(chance.randint(1, 4), DIGITS)


SEED_WORDS: Final = (
    "abandon",
    "zebra",
    "ocean",
    "lamp",
    "velvet",
    "cactus",
    "orbit",
    "quiz",
    "tiger",
    "noble",
    "river",
    "stone",
)
Shape = Callable[[], str]
TOKENS: Final[tuple[Shape, ...]] = (
    lambda: "xai-" + some(80),
    lambda: "r8_" + some(37),
    lambda: f"pcsk_{some(6)}_{some(63)}",
    lambda: "nfp_" + some(36),
    lambda: "sbp_" + some(40, HEX),
    lambda: "sb_secret_" + some(22) + "_" + some(8),
    lambda: f"CCIPAT_{some(22)}_{some(40, HEX)}",
    lambda: f"figd_{some(20)}-{some(19)}",
    lambda: f"lsv2_pt_{some(32, HEX)}_{some(10, HEX)}",
    lambda: f"lsv2_sk_{some(32, HEX)}_{some(10, HEX)}",
    lambda: "ntn_" + some(46),
    lambda: "secret_" + some(43),
    lambda: "pplx-" + some(48),
    lambda: "fw_" + some(24),
    lambda: "csk-" + some(48, LOWER + DIGITS),
    lambda: "tgp_v1_" + some(43),
    lambda: f"vercel_blob_rw_{some(16)}_{some(30)}",
    lambda: "rnd_" + some(32),
    lambda: "fo1_" + some(43),
    lambda: "FlyV1 fm2_" + some(300, BASE64),
    lambda: "pscale_tkn_" + some(43),
    lambda: "napi_" + some(64, LOWER + DIGITS),
    lambda: f"re_{some(8)}_{some(24)}",
    lambda: "key-" + some(32, HEX),
    lambda: f"xkeysib-{some(64, HEX)}-{some(16)}",
    lambda: "lin_oauth_" + some(64, HEX),
    lambda: f"pat{some(14)}.{some(64, HEX)}",
    lambda: "sl.u." + some(140, WORD + "-_"),
    lambda: "dp.st.prd." + some(43),
    lambda: "hcaik_01" + some(56, LOWER + DIGITS),
    lambda: "phx_" + some(43),
    lambda: f"v1.0-{some(24, HEX)}-{some(146, HEX)}",
    lambda: f"{some(14)}.atlasv1.{some(67)}",
    lambda: "ico-" + some(32),
    lambda: "bkua_" + some(40, HEX),
    lambda: "AKCp8" + some(68),
    lambda: "Authorization: SSWS 00" + some(40, WORD + "-_"),
    lambda: "EAAAE" + some(59, WORD + "-_"),
    lambda: f"access_token$production${some(16, LOWER + DIGITS)}${some(32, HEX)}",
    lambda: f"access-production-{uuid()}",
    lambda: "aio_" + some(28),
    lambda: "LTAI5t" + some(18),
    lambda: "AKID" + some(32),
    lambda: "AQVN" + some(36, WORD + "-_"),
    lambda: f"sgp_{some(16, HEX)}_{some(40, HEX)}",
    lambda: "pnu_" + some(36),
    lambda: "rdme_" + some(70, LOWER + DIGITS),
    lambda: "shippo_live_" + some(40, HEX),
    lambda: "tfp_" + some(44) + "_" + some(14),
    lambda: "CFPAT-" + some(43),
    lambda: f"{some(3)}8Q~{some(34)}",
    lambda: "HRKU-AA" + some(58, WORD + "-_"),
    lambda: "essu_" + coded(some(60)),
    lambda: f"sdk-{uuid()}",
    lambda: f"sk.eyJ1Ijoi{some(80)}.{some(22)}",
    lambda: "oy2" + some(43, LOWER + DIGITS),
    lambda: "cio" + some(32),
    lambda: "CLOJARS_" + some(60, HEX),
    lambda: f"https://contoso.webhook.office.com/webhookb2/{uuid()}@{uuid()}/IncomingWebhook/{some(32, HEX)}/{uuid()}",
    lambda: "1//0" + some(60, WORD + "-_"),
    lambda: "sk_" + some(48, HEX),
    lambda: "tvly-dev-" + some(32),
    lambda: "fc-" + some(32, HEX),
    lambda: "jina_" + some(60),
    lambda: f"pa-{some(43, WORD + '-_')}",
    lambda: f"sk-lf-{uuid()}",
    lambda: "nvapi-" + some(64, WORD + "-_"),
    lambda: "e2b_" + some(40, HEX),
    lambda: f"waka_{uuid()}",
    lambda: "duffel_live_" + some(43),
    lambda: f"FLWSECK-{some(32, HEX)}-X",
    lambda: "eyJhbGciOiJFZERTQSJ9." + some(120, WORD + "-_") + "." + some(86, WORD + "-_"),
    lambda: "cfut_" + some(40),
    lambda: "glcbt-64_" + some(20),
    lambda: f"otpauth://totp/Shop:ana@example.net?secret={some(32, BASE32)}&issuer=Shop",
)
FILES: Final[tuple[Shape, ...]] = (
    lambda: (
        f"users:\n- name: admin\n  user:\n    client-key-data: {coded('-----BEGIN RSA PRIVATE KEY-----' + some(200))}"
    ),
    lambda: f"    client-key-data: LS0tLS1CRUdJTiBFQyBQUklWQVRF{some(300, BASE64)}=",
    lambda: f"[Interface]\nAddress = 10.0.0.2/24\nPrivateKey = {some(43, BASE64)}=",
    lambda: f"[Peer]\nPresharedKey = {some(43, BASE64)}=",
    lambda: '{"auths": {"ghcr.io": {"auth": "' + coded(f"ana:{some(24)}") + '"}}}',
    lambda: '"https://index.docker.io/v1/": {\n  "auth": "' + coded(f"bot:{chosen()}") + '"\n}',
    lambda: f"//registry.example.net/:_auth={coded(f'ana:{some(16)}')}",
    lambda: f"_auth = {coded(f'deploy:{chosen()}!')}",
    lambda: f"//npm.example.net/:_password={coded(some(16))}",
    lambda: f"RAILS_MASTER_KEY={some(32, HEX)}",
    lambda: f"config/master.key: {some(32, HEX)}",
    lambda: f"SECRET_KEY_BASE: {some(128, HEX)}",
    lambda: f"CI_DEPLOY_TOKEN={some(64, HEX)}",
    lambda: f"export GITEA_TOKEN={some(40, HEX)}",
    lambda: f"DD_API_KEY={some(32, HEX)}",
    lambda: f"WANDB_API_KEY: {some(40, HEX)}",
    lambda: f"ENCRYPTION_KEY={some(64, HEX)}",
    lambda: f"APP_KEY=base64:{some(43, BASE64)}=",
    lambda: f"[client]\nuser=root\npassword={chosen()}",
    lambda: f"admin:$apr1${some(8)}${some(22, WORD + './')}",
    lambda: f'db_password = "{chosen()}"',
    lambda: f"spring.datasource.password={chosen()}",
    lambda: f"SECRET_KEY = 'django-insecure-{some(50, LOWER + DIGITS + '!@#$%^&*(-_=+)')}'",
    lambda: f"jdbc:postgresql://db/shop?user=app&password={chosen()}",
    lambda: f"Server=db;Database=shop;User Id=sa;Password={chosen()};Encrypt=true",
    lambda: f"Driver=FreeTDS;Server=db;UID=app;PWD={chosen()};",
    lambda: f"define('DB_PASSWORD', '{chosen()}');",
    lambda: f"define( 'AUTH_KEY', '{some(64, WORD + '!@#%^&*()-_ []{}<>~+=,.;:/?|')}' );",
    lambda: f"<server><id>nexus</id><username>deploy</username><password>{chosen()}</password></server>",
    lambda: f'<user username="admin" password="{chosen()}" roles="manager-gui"/>',
    lambda: f"Unseal Key 1: {some(43, BASE64)}=",
    lambda: f"Initial Root Token: s.{some(24)}",
    lambda: f'vpn.example.net : PSK "{some(24)}"',
    lambda: f'network={{\n  ssid="office"\n  psk="{chosen()}"\n}}',
    lambda: f"X-Api-Key: {some(32)}",
    lambda: f"curl -H 'PRIVATE-TOKEN: {some(20, WORD + '-_')}' https://git.example.net/api",
    lambda: f"Ocp-Apim-Subscription-Key: {some(32, HEX)}",
    lambda: f"aws_session_token = {some(340, BASE64)}==",
    lambda: f"apiVersion: v1\nkind: Secret\ndata:\n  password: {coded(some(18))}",
    lambda: f"Cookie: sessionid={some(32, LOWER + DIGITS)}; theme=dark",
    lambda: json.dumps({"type": "authorized_user", "refresh_token": "1//0" + some(50), "client_id": "x"}),
    lambda: f"requirepass {chosen()}{some(8)}",
    lambda: f"PGPASSWORD={chosen()} psql -h db -U app shop",
    lambda: f"docker login ghcr.io -u ana -p {some(24)}",
    lambda: f"helm repo add shop https://charts.example.net --username ci --password {chosen()}",
    lambda: f"az login --service-principal -u {uuid()} -p {some(3)}7Q~{some(34)} --tenant {uuid()}",
    lambda: f"ansible_become_pass: {chosen()}",
    lambda: f"token: {some(64, HEX)}",
    lambda: f"erlang.cookie = {some(20, UPPER)}",
    lambda: f"seed phrase: {' '.join(chance.sample(SEED_WORDS, 12))}",
)
SAID: Final[tuple[Shape, ...]] = (
    lambda: f"use {chosen()} as the password",
    lambda: f"Use {chosen()} as password for staging.",
    lambda: f"{chosen()} is the admin password",
    lambda: f"`{chosen()}` is our wifi password, ask before changing it",
    lambda: f"log in as root with the password {chosen()}",
    lambda: f"Log in as deploy with password '{chosen()}' on web-3",
    lambda: f"root mit Kennwort {chosen()}",
    lambda: f"Anmeldung als admin mit dem Passwort {chosen()}",
    lambda: f"the credentials are admin / {chosen()}",
    lambda: f"login: admin/{chosen()}",
    lambda: f"staging login is ana with {chosen()} as password",
    lambda: f"user admin, pass {chosen()}",
    lambda: f"username: admin, password {chosen()}",
    lambda: f"connecte-toi avec le mot de passe {chosen()}",
    lambda: f"entra con la contraseña {chosen()}",
    lambda: f"entre com a senha {chosen()}",
    lambda: f"войти с паролем {chosen()}",
    lambda: f"accedi con la password {chosen()}",
    lambda: f"{some(4, DIGITS)} is the PIN of the safe",
    lambda: f"the door opens with the PIN {some(4, DIGITS)}",
    lambda: f"password of the wifi was changed to {chosen()}",
    lambda: f"We set the root password to {chosen()} on Monday",
    lambda: f"Das Passwort wurde auf {chosen()} geändert",
    lambda: f"the db password used to be {chosen()}, now it is {chosen()}x",
    lambda: f"Mit {chosen()} als Kennwort kommt man ins NAS",
    lambda: f"パスワードに{chosen()}を使う",
    lambda: f"密码改成了 {chosen()}",
    lambda: f"password ({chosen()}) for the printer",
    lambda: f"Passwords: staging {chosen()}, production {chosen()}",
    lambda: f"creds: ana@example.net : {chosen()}",
)
SPLIT: Final[tuple[Callable[[], dict[str, str]], ...]] = (
    lambda: {"content": chosen(), "summary": "password of the staging database"},
    lambda: {"content": f"{chosen()}!", "summary": "root password"},
    lambda: {"content": "admin password of the router", "summary": chosen()},
    lambda: {"content": some(24), "summary": "API key of the weather service"},
    lambda: {"content": some(40, HEX), "summary": "deploy token for the registry"},
    lambda: {"content": f"It is {chosen()}.", "summary": "wifi password"},
    lambda: {"content": chosen(), "summary": "Kennwort für das NAS"},
    lambda: {"content": "the API key for the geocoder", "summary": some(32)},
    lambda: {"content": some(4, DIGITS), "summary": "PIN of the safe"},
    lambda: {"content": chosen(), "summary": "mot de passe du serveur"},
)
NAMED: Final = (
    "deploy with --token {token}",
    "vault login --token {token}",
    'gh auth login --with-token ; helm push --token "{token}"',
    "tool --api-key {token}",
    "cli --secret {token}",
    "HEROKU_API_KEY={uuid}",
    "the Heroku token is {uuid}",
    "api_token: {uuid}",
    '"client_secret": "{uuid}"',
    "NEW_RELIC_API_TOKEN: '{uuid}'",
    'ConvertTo-SecureString "{password}" -AsPlainText -Force',
    "$pw = ConvertTo-SecureString '{password}' -AsPlainText",
    'ConvertTo-SecureString -String "{password}" -AsPlainText -Force',
    "the ethereum key is 0x{digits}",
    "PRIVATE_KEY=0x{digits}",
    "private key of the deployer: {digits}",
    'ETH_PRIVATE_KEY: "0x{digits}"',
    "Log in to the NAS as admin, password {password}",
    "you can log in with the password {password} on staging",
    "The staging database password changed to {password} yesterday",
    "we use {password} as password for the demo account",
    "the root password there: {password}",
    "Our wifi is called Lagerhaus and its password is {password}",
    "If asked for a password, type {password}",
    "the password {password} opens the vault",
    "he gave me the password: {password}",
    "ssh in as root/{password}",
    "Das Passwort für den Drucker ist {password}",
    "Melde dich mit dem Passwort {password} an",
    "Das WLAN-Kennwort heißt {password}",
    "Das Root-Passwort wurde auf {password} geändert",
    "Mit Benutzer admin und Passwort {password} kommt man auf den Server",
    "Als Passwort nehmen wir {password}",
    "Passwort vom Router: {password}",
    "Der Zugang zum Testserver: admin, Kennwort {password}",
    "Das neue Passwort der Datenbank lautet jetzt {password}",
    "wir haben das Kennwort in {password} geändert",
    "Zugangsdaten: benutzer ana, passwort {password}",
    "To get into Grafana use admin and the password {password}",
    "I changed my laptop password, it's now {password}",
    "Remember that the password for Jenkins was reset to {password}",
    "Jenkins login: deploy, password: {password}",
    "the db password (staging) is {password}",
    "the password on the router's sticker reads {password}",
    "Password of the test account = {password}",
    'ask for user "qa" with password "{password}"',
    "sudo needs the password {password}",
    "The admin user has the password {password}",
    "new password for alice -> {password}",
    "I set {password} as the new password",
    'our VPN password: "{password}"',
    "password hint: none; password itself: {password}",
    "The passphrase of the GPG key is {password}",
    "Server pw is now: {password}",
    "my Wi-Fi passphrase, in case you need it: {password}",
    "Das Passwort von Jenkins lautet {password}",
    "Ich habe das Passwort auf {password} gesetzt",
    "Passwort für die DB (Staging): {password}",
    "Merke dir: Passwort der Testdatenbank ist {password}",
    "Nutzer qa, Passwort {password}",
    "Das Standardpasswort ist {password}",
    "Mein Kennwort fürs Intranet ist {password}",
    "der Root-User hat das Passwort {password}",
    "Die Passphrase des GPG-Schlüssels heißt {password}",
    "Zum Einloggen das Passwort {password} eingeben",
    'WLAN-Passwort: "{password}"',
    "Passwort lautet wie folgt: {password}",
    "vault write -token={token} foo",
    "npm publish --otp 123456 --token {token}",
    "docker login -u ci -p {password} registry.example.com",
    "kubectl --token={token} get pods",
    'export DEPLOY_SECRET="{uuid}"',
    "X-Auth-Token: {uuid}",
    "the API key is {uuid}",
    '$cred = New-Object PSCredential("admin", (ConvertTo-SecureString -AsPlainText "{password}" -Force))',
    "wallet private key: 0x{digits}",
)
"""Sentences, commands and settings for `named` to fill in."""


def named(template: str) -> str:
    """Return one of `NAMED` with a secret in it."""
    secrets = {"uuid": uuid(), "digits": some(64, HEX), "token": f"{some(6)}7{some(6)}aB3", "password": chosen()}
    for name, secret in secrets.items():
        template = template.replace(f"{{{name}}}", secret)
    return template
