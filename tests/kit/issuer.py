"""An OAuth 2 issuer on loopback: client credentials for short-lived tokens (JWT, RS256), and its public keys."""

import base64
import threading
import time
from collections.abc import Collection, Mapping
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote

import orjson
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

AUDIENCE = "kafka"


class Issuer:
    """Gives each client that knows its secret a token whose subject is the client's id.

    Args:
        secrets: by the client's id.
        lifetime_s: of a token.
        lasting: ids of clients whose tokens last an hour all the same.

    Attributes:
        given: the subjects of all tokens that were given.
        asked: the forms of all requests.
        answer: what every request is answered with in place of a token: status and body.
    """

    def __init__(self, secrets: Mapping[str, str], lifetime_s: float = 3600, lasting: Collection[str] = ()) -> None:
        self.given: list[str] = []
        self.asked: list[dict[str, list[str]]] = []
        self.answer: tuple[int, bytes] | None = None
        self._secrets, self._lifetime_s, self._lasting = secrets, lifetime_s, lasting
        self._key = _made_key()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def respond(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, bytes]:
        """Status and body for a request for a token."""
        self.asked.append(form)
        if self.answer is not None:
            return self.answer
        client, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        client, secret = unquote(client), unquote(secret)
        if form.get("grant_type") != ["client_credentials"] or self._secrets.get(client) != secret:
            return 401, orjson.dumps({"error": "invalid_client", "error_description": "no such client"})
        self.given.append(client)
        lifetime_s = 3600 if client in self._lasting else self._lifetime_s
        body = {"access_token": self._token(client, lifetime_s), "token_type": "Bearer", "expires_in": lifetime_s}
        return 200, orjson.dumps(body)

    def _token(self, subject: str, lifetime_s: float) -> str:
        now_s = time.time()
        claims = {"iss": self.url, "aud": AUDIENCE, "sub": subject, "iat": now_s, "exp": now_s + lifetime_s}
        signed = b".".join(_encoded(orjson.dumps(part)) for part in ({"alg": "RS256", "kid": "1"}, claims))
        signature = self._key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
        return (signed + b"." + _encoded(signature)).decode()

    def _keys(self) -> bytes:
        numbers = self._key.public_key().public_numbers()
        parts = {"n": numbers.n.to_bytes(256, "big"), "e": numbers.e.to_bytes(3, "big")}
        key = {name: _encoded(value).decode() for name, value in parts.items()}
        return orjson.dumps({"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1", **key}]})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._write(200, issuer._keys())

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self._write(*issuer.respond(self.headers.get("Authorization", ""), form))

            def _write(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Location", f"{issuer.url}/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        return Handler


@cache
def _made_key() -> rsa.RSAPrivateKey:
    """One key for all issuers of a process: making one takes longer than most tests of them."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
