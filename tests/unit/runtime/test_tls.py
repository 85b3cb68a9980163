"""The TLS of a Kafka client by files and by PEM text, with and without a password; nobody is asked for one."""

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from runtime import kafkaclients, tls
from schemas.connection import SettingsError, gather
from tests.kafka.certificates import Authority

MARKER = "Zq7marker"
_PEM = serialization.Encoding.PEM


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.pem, client.pem (certificate and key), cert.pem, key.pem, and the encrypted locked.pem."""
    folder = tmp_path_factory.mktemp("tls")
    bundle = Authority(folder).issue("client").read_text()
    cut = bundle.index("-----BEGIN CERTIFICATE")
    (folder / "cert.pem").write_text(bundle[cut:])
    (folder / "key.pem").write_text(bundle[:cut])
    key = serialization.load_pem_private_key(bundle[:cut].encode(), None)
    for name, form in (
        ("locked", serialization.PrivateFormat.PKCS8),
        ("old", serialization.PrivateFormat.TraditionalOpenSSL),
    ):
        locked = key.private_bytes(_PEM, form, serialization.BestAvailableEncryption(b"hunter2"))
        (folder / f"{name}.pem").write_bytes(locked)
        (folder / f"{name}-both.pem").write_bytes(locked + bundle[cut:].encode())
    (folder / "store.bin").write_bytes(b"\xfe\xed\xfe\xed" + MARKER.encode())
    return folder


def _line(path: Path) -> str:
    """PEM as it stands in a property: in one line."""
    return path.read_text().replace("\n", " ").strip()


def _context(place: Path, text: str) -> ssl.SSLContext:
    settings = gather({}, properties=f"security.protocol=SSL\n{text.replace('@', f'{place}/')}")
    context = kafkaclients.ssl_context(settings)
    assert context is not None
    return context


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("ssl.keystore.location=@client.pem", id="one file"),
        pytest.param("ssl.keystore.location=@cert.pem\nssl.keystore.key=@key.pem", id="two files"),
        pytest.param("ssl.keystore.location=@locked-both.pem\nssl.key.password=hunter2", id="one file, encrypted"),
        pytest.param("ssl.keystore.location=@old-both.pem\nssl.key.password=hunter2", id="in the older form"),
        pytest.param(
            "ssl.keystore.location=@cert.pem\nssl.keystore.key=@locked.pem\nssl.key.password=hunter2", id="encrypted"
        ),
        pytest.param(
            "ssl.keystore.location=@client.pem\nssl.key.password=needless", id="a password that is not needed"
        ),
    ],
)
def test_a_clients_certificate_and_key_are_loaded(place: Path, text: str) -> None:
    assert _context(place, f"{text}\nssl.truststore.location=@ca.pem").get_ca_certs()


@pytest.mark.parametrize("key", ["key.pem", "locked.pem", "old.pem"])
@pytest.mark.parametrize("is_one_line", [True, False])
def test_pem_text_is_used_as_it_stands_in_the_properties(place: Path, key: str, is_one_line: bool) -> None:
    if key == "old.pem" and is_one_line:
        return  # its headers need lines of their own, for Java, too

    def text(name: str) -> str:
        path = place / name
        return _line(path) if is_one_line else path.read_text().strip().replace("\n", "\\n")

    names = {
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": "cert.pem",
        "ssl.truststore.certificates": "ca.pem",
    }
    if not is_one_line:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.trust(context, (place / "ca.pem").read_text())
        tls.identify(context, (place / "cert.pem").read_text(), (place / key).read_text(), "hunter2")
    else:
        lines = "\n".join(f"{name}={text(file)}" for name, file in names.items())
        context = _context(place, f"{lines}\nssl.keystore.type=PEM\nssl.truststore.type=PEM\nssl.key.password=hunter2")
    assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("ssl.keystore.location=@locked-both.pem", id="one file"),
        pytest.param("ssl.keystore.location=@old-both.pem", id="in the older form"),
        pytest.param("ssl.keystore.location=@cert.pem\nssl.keystore.key=@locked.pem", id="two files"),
        pytest.param("ssl.keystore.location=@locked-both.pem\nssl.key.password=other", id="another password"),
    ],
)
def test_an_encrypted_key_without_its_password_is_refused_and_nobody_is_asked(place: Path, text: str) -> None:
    with pytest.raises(SettingsError, match=r"the private key is encrypted, and .*: set ssl\.key\.password"):
        _context(place, text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param("ssl.truststore.location=@store.bin", "ssl.truststore.location, file .*PEM", id="a store of Java"),
        pytest.param("ssl.truststore.location=@none.pem", "ssl.truststore.location, file .*No such file", id="no file"),
        pytest.param("ssl.keystore.location=@store.bin", "ssl.keystore.location, file .*PEM", id="a key store of Java"),
        pytest.param(
            f"ssl.keystore.location=@cert.pem\nssl.keystore.key={MARKER}", "ssl.keystore.key", id="a bare key"
        ),
        pytest.param(
            "ssl.keystore.location=@cert.pem\n"
            f"ssl.keystore.key=-----BEGIN PRIVATE KEY----- {MARKER} -----END PRIVATE KEY-----",
            "ssl.keystore.key",
            id="a key that is none",
        ),
        pytest.param(
            f"ssl.truststore.certificates=-----BEGIN CERTIFICATE----- {MARKER} -----END CERTIFICATE-----",
            "ssl.truststore.location, its PEM text",
            id="an authority that is none",
        ),
    ],
)
def test_what_cannot_be_loaded_is_named_by_its_key_and_not_shown(place: Path, text: str, named: str) -> None:
    with pytest.raises(SettingsError, match=named) as refused:
        _context(place, text)
    assert MARKER not in str(refused.value)


@pytest.mark.parametrize(("value", "checks"), [("", False), ("https", True)])
def test_whether_the_name_of_a_broker_is_checked(place: Path, value: str, checks: bool) -> None:
    context = _context(place, f"ssl.endpoint.identification.algorithm={value}")
    assert (context.check_hostname, context.verify_mode) == (checks, ssl.CERT_REQUIRED)


def test_a_key_that_a_library_would_ask_for_is_refused_before_it_does(place: Path) -> None:
    tls.without_prompt(str(place / "client.pem"), None, "")
    for name in ("locked", "old-both"):
        with pytest.raises(tls.EncryptedKeyError, match="private key is encrypted: decrypt it"):
            tls.without_prompt(str(place / "cert.pem"), str(place / f"{name}.pem"))
