"""A throw-away certificate authority, a broker certificate and a client certificate, as PEM files."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)
_PEM = serialization.Encoding.PEM


class Authority:
    """Signs certificates; its own is `ca.pem` in the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("fleethpa-test-ca")
        constraint = x509.BasicConstraints(ca=True, path_length=0)
        certificate = _builder(self._name, self._name, self._key).add_extension(constraint, critical=True)
        self.cafile = folder / "ca.pem"
        self.cafile.write_bytes(certificate.sign(self._key, hashes.SHA256()).public_bytes(_PEM))

    def issue(self, name: str) -> Path:
        """Key (PKCS 8) and certificate of this common name, in one file."""
        key = ec.generate_private_key(ec.SECP256R1())
        hosts = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        certificate = _builder(_name(name), self._name, key).add_extension(hosts, critical=False)
        private = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        bundle = self.folder / f"{name}.pem"
        bundle.write_bytes(private + certificate.sign(self._key, hashes.SHA256()).public_bytes(_PEM))
        return bundle


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


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
