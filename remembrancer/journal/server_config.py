"""A complete configuration for one NATS server or a cluster of three, with certificates if other hosts connect."""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from jinja2 import StrictUndefined, Template

from remembrancer.journal.jetstream import LOOPBACK
from remembrancer.journal.nats_accounts import Authority

PORT: Final = 4222
CLUSTER_PORT: Final = 6222
_CONFIGURATION: Final = Path(__file__).with_name("server.conf.jinja")
_VALID_FOR: Final = timedelta(days=3650)
_YESTERDAY: Final = timedelta(days=1)
"""Certificates are valid from the day before, because clocks differ."""


class Address(NamedTuple):
    host: str
    port: int = PORT

    @property
    def is_local(self) -> bool:
        return self.host in LOOPBACK

    @property
    def url(self) -> str:
        return f"{'nats' if self.is_local else 'tls'}://{_bracketed(self.host)}:{self.port}"


class Certificates(NamedTuple):
    """The authority that signs the servers' certificates, in PEM."""

    certificate: str
    key: str

    @classmethod
    def new(cls) -> Self:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "remembrancer")])
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        certificate = (
            _certificate(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, SHA256())
        )
        return cls(_pem(certificate), _key_pem(key))

    def for_host(self, host: str) -> tuple[str, str]:
        signer = x509.load_pem_x509_certificate(self.certificate.encode())
        signing = load_pem_private_key(self.key.encode(), None)
        assert isinstance(signing, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]  # the servers connect to each other
        certificate = (
            _certificate(name, signer.subject, key.public_key())
            .add_extension(x509.SubjectAlternativeName([_named(host)]), critical=False)
            .add_extension(x509.ExtendedKeyUsage(both), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
            .sign(signing, SHA256())
        )
        return _pem(certificate), _key_pem(key)


def server_files(
    authority: Authority, certificates: Certificates, addresses: Sequence[Address]
) -> dict[str, dict[str, str]]:
    """Each server's files, by the name of its directory, in which `nats-server -c server.conf` starts the server."""
    template = Template(_CONFIGURATION.read_text(), trim_blocks=True, undefined=StrictUndefined)
    apart, made = CLUSTER_PORT - PORT, {}
    for number, own in enumerate(addresses, 1):
        scheme = "nats" if own.is_local else "tls"
        routes = [f"{scheme}://{_bracketed(each.host)}:{each.port + apart}" for each in addresses]
        text = template.render(
            number=number,
            own=own,
            listens=_bracketed(own.host) if own.is_local else "0.0.0.0",  # noqa: S104 - other hosts must reach it
            authority=authority,
            routes=routes if len(addresses) > 1 else [],
            apart=apart,
        )
        files = made[f"server-{number}"] = {"server.conf": f"{text.rstrip()}\n"}
        if not own.is_local:
            files["server.pem"], files["server.key"] = certificates.for_host(own.host)
            if len(addresses) > 1:
                files["ca.pem"] = certificates.certificate
    return made


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _YESTERDAY)
        .not_valid_after(now + _VALID_FOR)
    )


def _named(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
