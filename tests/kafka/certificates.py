"""A throw-away certificate authority, and the certificates of servers and clients that it signs, as PEM files."""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)
_PEM = serialization.Encoding.PEM


class Authority:
    """Signs certificates; its own is `ca.pem` in the folder, with its key in `ca-key.pem`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("fleethpa-test-ca")
        constraint = x509.BasicConstraints(ca=True, path_length=0)
        certificate = _builder(self._name, self._name, self._key).add_extension(constraint, critical=True)
        self.cafile = folder / "ca.pem"
        self.cafile.write_bytes(certificate.sign(self._key, hashes.SHA256()).public_bytes(_PEM))
        self.keyfile = folder / "ca-key.pem"
        self.keyfile.write_bytes(_private(self._key))

    def issue(self, name: str, *, organization: str = "", hosts: Sequence[str] = ()) -> Path:
        """Key (PKCS 8) and certificate of this common name, in one file.

        `organization`: what Kubernetes reads as the user's group. `hosts`: names of a server beside `localhost`.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName(host) for host in ("localhost", *hosts)]
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        certificate = _builder(_name(name, organization), self._name, key).add_extension(
            x509.SubjectAlternativeName([*names, address]), critical=False
        )
        bundle = self.folder / f"{name}.pem"
        bundle.write_bytes(_private(key) + certificate.sign(self._key, hashes.SHA256()).public_bytes(_PEM))
        return bundle


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _name(common: str, organization: str = "") -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
    )
