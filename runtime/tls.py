"""Certificates and keys for TLS: from files or from PEM text, and never with a question on the terminal."""

import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PEM: Final = "-----BEGIN "
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_COLUMNS: Final = 64


class EncryptedKeyError(ValueError):
    """A private key is encrypted, and there is no password, or another one."""


def is_pem_text(value: str) -> bool:
    """Whether a setting is the PEM text itself, and not the name of a file."""
    return PEM in value


def is_encrypted(pem: bytes) -> bool:
    """Whether a private key in this text needs a password."""
    return b"-----BEGIN ENCRYPTED PRIVATE KEY-----" in pem or b"Proc-Type: 4,ENCRYPTED" in pem


def without_prompt(*files: str | None) -> None:
    """Check that none of these files has a key that would be asked for on the terminal.

    Raises EncryptedKeyError: one has, and its library takes no password. Raises OSError: a file cannot be read.
    """
    for file in filter(None, files):
        if is_encrypted(Path(file).read_bytes()):
            raise EncryptedKeyError(
                "the client's private key is encrypted: decrypt it (`openssl pkey -in KEY -out NEW`)"
            )


def client_context(authorities: str = "") -> ssl.SSLContext:
    """Return a client's context that trusts the authorities of a file or PEM text, or (empty) the system's.

    Raises OSError: they cannot be read (ssl.SSLError is one).
    """
    if is_pem_text(authorities):
        return ssl.create_default_context(cadata=_lines(authorities))
    return ssl.create_default_context(cafile=authorities or None)


def trust(context: ssl.SSLContext, authorities: str) -> None:
    """Trust the authorities of a file or PEM text. Raises OSError (ssl.SSLError is one): they cannot be read."""
    if is_pem_text(authorities):
        context.load_verify_locations(cadata=_lines(authorities))
    else:
        context.load_verify_locations(authorities)


def identify(context: ssl.SSLContext, certificate: str, key: str = "", password: str = "") -> None:
    """Use a certificate with its chain, and its key; each is a file or PEM text. `key` empty: it is with the
    certificate.

    Raises:
        EncryptedKeyError: the key is encrypted, and the password is empty or another one.
        OSError: a file cannot be read, or is not PEM (ssl.SSLError is one).
    """
    is_asked = False

    def answer() -> str:
        nonlocal is_asked
        is_asked = True
        return password

    try:
        with _file(certificate) as chain, _file(key) as own_key:
            context.load_cert_chain(chain, own_key or None, password=answer)
    except ssl.SSLError as error:
        if is_asked:
            why = "the password is not its own" if password else "no password is given"
            raise EncryptedKeyError(f"the private key is encrypted, and {why}") from error
        raise


def _lines(text: str) -> str:
    """PEM text as OpenSSL reads it: a property has it in one line, with blanks or nothing in place of line ends."""
    blocks = []
    for label, body in _BLOCK.findall(text):
        if ":" in body:  # headers, of which each needs its line
            blocks.append(f"-----BEGIN {label}-----{body}-----END {label}-----\n")
            continue
        data = re.sub(r"\s+|\\n", "", body)
        rows = [data[at : at + _COLUMNS] for at in range(0, len(data), _COLUMNS)]
        blocks.append("\n".join([f"-----BEGIN {label}-----", *rows, f"-----END {label}-----", ""]))
    return "".join(blocks)


@contextmanager
def _file(value: str) -> Iterator[str]:
    """The name of a file with this PEM text, which is in memory alone where the system can do that."""
    if not is_pem_text(value):
        yield value
        return
    text = _lines(value).encode()
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pem")
        try:
            os.write(descriptor, text)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(text)
            file.flush()
            yield file.name
