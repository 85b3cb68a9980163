"""How to reach Kafka: one set of settings for every component, and the keyword arguments aiokafka takes for them.

Pure: the caller hands in the text of `client.properties` and the environment, and makes the SSL context itself from
`cafile`, `certfile` and `keyfile`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from ipaddress import IPv6Address
from typing import Any, Literal, get_args
from urllib.parse import urlsplit, urlunsplit

from schemas.clientkeys import EXTENSION_PREFIXES, LOGIN_OPTIONS, USED, module_refusal, option_refusal, refusal
from schemas.javaproperties import TRIMMED, JavaTextError, read_jaas, read_properties

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"]
DEFAULT_HUB = "hub"
MOST_HUB_CHARACTERS = 253
"""Of the name of a hub, which signs the records that it appends to the log."""

TOKEN_MECHANISMS: frozenset[SaslMechanism] = frozenset({"OAUTHBEARER", "AWS_MSK_IAM"})
"""Those that sign in with a token, which lasts minutes or hours."""

ENVIRONMENT_PREFIX = "FLEETHPA_KAFKA_"
PROPERTIES_VARIABLE = "FLEETHPA_KAFKA_CONFIG"
"""Names the client.properties; the caller reads the file."""
PROPERTIES_ENCODING = "iso-8859-1"
"""Of a client.properties: Kafka's tools load it as bytes, which Java takes for ISO-8859-1 whatever they are."""
DEFAULT_BROKERS = "127.0.0.1:9092"

MASK = "********"
"""What is shown in place of a password."""
_SERVER = re.compile(r"(?:\[(?P<address>[^\]]*)\]|[^\s:/@\[\]]+)(?::(?P<port>[^:\s]*))?")
_SECRETS = frozenset({"password", "key_password", "keyfile", "extensions"})
"""Fields that are never shown; `keyfile` may be the key itself."""
PEM_HINT = "fleethpa reads PEM files: convert the store with `openssl pkcs12` or `keytool -exportcert -rfc`"


class SettingsError(ValueError):
    """Settings that cannot be used; the text names the setting and the next step."""


@dataclass(frozen=True, kw_only=True)
class KafkaSettings:
    """Where Kafka is and who we are to it.

    `cafile`: PEM of the authorities to trust (empty: the system's). `certfile`, `keyfile`: PEM of the client's own
    certificate and key, for mutual TLS; `keyfile` empty: the key is in `certfile`. Each names a file or is the PEM text
    itself. `key_password`: of an encrypted key. `verify_hostname`: `false` where a broker's certificate need not have
    its name. What may be secret never shows in `repr`.

    With OAUTHBEARER `username` and `password` are the client's id and secret at `token_endpoint` (the URL of an OAuth
    2 issuer); `scope` is sent there, and `extensions` (`name=value,…`) to the brokers. `client_rack`: consumers fetch
    from a replica of this rack where the brokers allow it; empty: from leaders.

    Raises SettingsError: an unknown protocol or mechanism, SASL without a user name, or a key without a certificate.
    """

    bootstrap_servers: str = DEFAULT_BROKERS
    security_protocol: SecurityProtocol = "PLAINTEXT"
    sasl_mechanism: SaslMechanism = "SCRAM-SHA-512"
    username: str = ""
    password: str = ""
    cafile: str = ""
    certfile: str = ""
    keyfile: str = ""
    client_id: str = "fleethpa"
    token_endpoint: str = ""
    scope: str = ""
    extensions: str = ""
    client_rack: str = ""
    key_password: str = ""
    verify_hostname: str = "true"

    def __post_init__(self) -> None:
        _check_one_of("security.protocol", self.security_protocol, get_args(SecurityProtocol))
        _check_one_of("sasl.mechanism", self.sasl_mechanism, get_args(SaslMechanism))
        _check_one_of("verify_hostname", self.verify_hostname, ("true", "false"))
        if not self.servers:
            raise SettingsError("bootstrap.servers is empty: name at least one broker as host:port")
        for server in self.servers:
            _check_server(server)
        if self.uses_sasl and self.sasl_mechanism in TOKEN_MECHANISMS:
            self._check_tokens()
        elif self.uses_sasl and not self.username:
            raise SettingsError(f"security.protocol {self.security_protocol} needs a username (and a password)")
        if self.keyfile and not self.certfile:
            raise SettingsError("a client key needs its certificate: set ssl.keystore.location (certfile) too")

    def _check_tokens(self) -> None:
        """Check what signing in with tokens needs. Raises SettingsError: something is missing or cannot be used."""
        if self.sasl_mechanism == "AWS_MSK_IAM":
            if not self.uses_tls:
                raise SettingsError("sasl.mechanism AWS_MSK_IAM needs security.protocol SASL_SSL")
            return
        if not (self.username and self.password):
            raise SettingsError("sasl.mechanism OAUTHBEARER needs the client's id and secret (username and password)")
        url = urlsplit(self.token_endpoint)
        if not url.hostname or url.scheme not in ("https", "http"):
            raise SettingsError(
                "sasl.mechanism OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url (token_endpoint), an https URL"
                f", got {self.shown_endpoint!r}"
            )
        if url.scheme == "http" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
            raise SettingsError(f"token_endpoint {self.shown_endpoint!r} would send the secret in the clear: use https")
        _ = self.extension_values

    @property
    def extension_values(self) -> dict[str, str]:
        """The extensions by name. Raises SettingsError: one is not `name=value`, in letters and printable ASCII."""
        values: dict[str, str] = {}
        for part in filter(None, self.extensions.split(",")):
            name, separator, value = (each.strip() for each in part.partition("="))
            if not (separator and name.isascii() and name.isalpha() and value.isascii() and value.isprintable()):
                raise SettingsError("extensions must be name=value,…, each name of letters, each value printable ASCII")
            values[name] = value
        return values

    @property
    def servers(self) -> list[str]:
        """The brokers to ask first, one by one."""
        return [server.strip() for server in self.bootstrap_servers.split(",") if server.strip()]

    @property
    def uses_sasl(self) -> bool:
        """Whether the broker asks for a user name and a password."""
        return self.security_protocol.startswith("SASL_")

    @property
    def uses_tokens(self) -> bool:
        """Whether the broker asks for a token, so that the caller has to provide tokens."""
        return self.uses_sasl and self.sasl_mechanism in TOKEN_MECHANISMS

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted, so that the caller has to make an SSL context."""
        return self.security_protocol.endswith("SSL")

    @property
    def checks_hostname(self) -> bool:
        """Whether a broker's certificate must have its name."""
        return self.verify_hostname == "true"

    @property
    def shown_endpoint(self) -> str:
        """The issuer's URL without what may be secret in it."""
        url = urlsplit(self.token_endpoint)
        return urlunsplit((url.scheme, url.netloc.rpartition("@")[2], url.path, "", ""))

    def shown(self) -> dict[str, str]:
        """Every field as people may see it: what is not known to be harmless is masked."""
        values: dict[str, str] = {f.name: getattr(self, f.name) for f in fields(self)}
        values["token_endpoint"] = self.shown_endpoint
        masked = {*_SECRETS, *(name for name in ("cafile", "certfile") if "-----BEGIN " in values[name])}
        return {name: MASK if name in masked and value else value for name, value in values.items()}

    def __repr__(self) -> str:
        texts = (f"{name}={value if value == MASK else repr(value)}" for name, value in self.shown().items())
        return f"KafkaSettings({', '.join(texts)})"


def aiokafka_kwargs(settings: KafkaSettings) -> dict[str, Any]:
    """Keyword arguments of every aiokafka client, all but `ssl_context` and `sasl_oauth_token_provider`: the caller
    adds them where `uses_tls` and `uses_tokens`.
    """
    kwargs: dict[str, Any] = {
        "bootstrap_servers": settings.servers,
        "client_id": settings.client_id,
        "security_protocol": settings.security_protocol,
    }
    if settings.uses_tokens:
        kwargs["sasl_mechanism"] = "OAUTHBEARER"  # what MSK's tokens are sent as, too
    elif settings.uses_sasl:
        kwargs["sasl_mechanism"] = settings.sasl_mechanism
        kwargs["sasl_plain_username"] = settings.username
        kwargs["sasl_plain_password"] = settings.password
    return kwargs


def gather(environ: Mapping[str, str], *, properties: str = "", brokers: str = "") -> KafkaSettings:
    """The settings of a process: those of `client.properties`, over them the environment's, over all `brokers`.

    Raises SettingsError: a setting is not known, or its value cannot be used.
    """
    given: dict[str, Any] = properties_given(properties) | environment_given(environ)
    return KafkaSettings(**given | ({"bootstrap_servers": brokers} if brokers else {}))


def environment_given(environ: Mapping[str, str]) -> dict[str, str]:
    """The fields of `KafkaSettings` that the environment sets, and their values: `FLEETHPA_KAFKA_<FIELD>`, such as
    `FLEETHPA_KAFKA_BOOTSTRAP_SERVERS`.

    Raises SettingsError: a variable of the prefix names no setting.
    """
    names = {f"{ENVIRONMENT_PREFIX}{f.name.upper()}": f.name for f in fields(KafkaSettings)}
    given = {name: value for name, value in environ.items() if name.startswith(ENVIRONMENT_PREFIX)}
    given.pop(PROPERTIES_VARIABLE, None)
    if unknown := sorted(given.keys() - names.keys()):
        raise SettingsError(f"{unknown[0]} is not a setting; known are {', '.join(sorted(names))}")
    return {names[name]: value for name, value in given.items()}


def properties_given(text: str) -> dict[str, str]:
    """The fields of `KafkaSettings` that the text of a Java `client.properties` sets, and their values.

    The grammar is Java's (`schemas.javaproperties`). What becomes of each documented key is the table of
    `schemas.clientkeys`. Certificates and keys may be files or the PEM text itself.

    Raises SettingsError: a line is not a property, a key is refused (named, without its value), or two keys contradict.
    """
    given = _properties(text)
    for key, value in given.items():
        if reason := refusal(key, value):
            raise SettingsError(f"{reason}{_pem_hint(key)}")
        _check_store(key, value)
    given_by: dict[str, tuple[str, str]] = {}
    for key in filter(USED.__contains__, given):
        _add(given_by, USED[key], key, given[key])
    if jaas := given.get("sasl.jaas.config"):
        for field, value in _jaas_options(jaas).items():
            _add(given_by, field, "sasl.jaas.config", value)
    if protocol := given_by.get("security_protocol"):
        given_by["security_protocol"] = protocol[0], protocol[1].upper()  # in any case, as for Java and librdkafka
    identification = given.get("ssl.endpoint.identification.algorithm")
    if identification is not None and identification.lower() != "https":
        given_by["verify_hostname"] = "ssl.endpoint.identification.algorithm", "false"
    return {field: value for field, (_, value) in given_by.items()}


def _add(given: dict[str, tuple[str, str]], field: str, key: str, value: str) -> None:
    """Set a field by a key. Raises SettingsError: another key has given it another value."""
    other, known = given.get(field, (key, value))
    if known != value:
        raise SettingsError(f"{other} and {key} contradict each other: leave one out")
    given[field] = key, value


_TEXTS = (
    "ssl.truststore.certificates",
    "ssl.keystore.certificate.chain",
    "ssl.ca.pem",
    "ssl.certificate.pem",
    "ssl.key.pem",
)
"""Keys whose value is PEM text in any case."""
_MARKS = tuple(mark.decode("iso-8859-1") for mark in (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"))
"""Byte order marks of UTF-8 and UTF-16, as a client.properties is decoded."""
_JAVA_STORES = (".jks", ".p12", ".pfx", ".keystore", ".truststore", ".bcfks")


def _check_store(key: str, value: str) -> None:
    """Check the form of a certificate or key. Raises SettingsError: it is a store of Java, or no PEM text."""
    if key in _TEXTS and "-----BEGIN " not in value:
        raise SettingsError(f"{key} must be PEM text, with its BEGIN and END")
    if USED.get(key) in ("cafile", "certfile", "keyfile") and value.lower().endswith(_JAVA_STORES):
        raise SettingsError(f"{key} names a store of Java; {PEM_HINT}")


def _pem_hint(key: str) -> str:
    return f"; {PEM_HINT}" if key in ("ssl.truststore.type", "ssl.keystore.type") else ""


def _check_one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise SettingsError(f"{name} must be one of {', '.join(known)}, got {value!r}")


def _check_server(server: str) -> None:
    """Check one broker's address: `host`, `host:port`, `[IPv6]:port` or a bare IPv6 address.

    Raises SettingsError: it is not an address, or its port is not from 1 to 65535.
    """
    if _is_ipv6(server):
        return
    if "://" in server:
        raise SettingsError(f"bootstrap.servers: {server!r} has a scheme: a broker is written host:port, without one")
    match = _SERVER.fullmatch(server)
    if match is None or (match["address"] and not _is_ipv6(match["address"])):
        raise SettingsError(f"bootstrap.servers: {server!r} is not host:port, such as kafka-0.example.com:9092")
    port = match["port"]
    if port is not None and not (port.isascii() and port.isdecimal() and len(port) < 6 and 0 < int(port) < 65_536):
        raise SettingsError(f"bootstrap.servers: {server!r}: the port must be a number from 1 to 65535, got {port!r}")


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _properties(text: str) -> dict[str, str]:
    """The properties of a file, as Kafka's tools have them; of most values they trim both ends.

    Raises SettingsError: one is refused. Of a line without `=` or `:` the text shows nothing: it may be a secret.
    """
    properties: dict[str, str] = {}
    if text.startswith(_MARKS):
        mark = "client.properties begins with a byte order mark, which Java takes for a part of the first name"
        raise SettingsError(f"{mark}: save the file as UTF-8 without it")
    try:
        for each in read_properties(text):
            if not each.has_sign and refusal(each.key, each.value):
                raise SettingsError(f"client.properties, property {each.number}: expected name=value")
            properties[each.key] = each.value.strip(TRIMMED)
    except JavaTextError as error:
        raise SettingsError(f"client.properties, {error}") from error
    return properties


def _jaas_options(jaas: str) -> dict[str, str]:
    """Return what a login module line gives: `<class> required username="u" password="p";`, the client of an issuer
    (`clientId`, `clientSecret`, `scope`, `extension_NAME`), or nothing with the module of MSK.
    """
    try:
        login = read_jaas(jaas)
    except JavaTextError as error:
        raise SettingsError(f"sasl.jaas.config: {error}") from error
    module, options = login.name.rpartition(".")[2], login.options
    if reason := module_refusal(module):
        raise SettingsError(reason)
    for option in options:
        if reason := option_refusal(module, option):
            raise SettingsError(reason)
    if module == "IAMLoginModule":
        return {}
    if module == "OAuthBearerLoginModule":
        return _oauth_options(options)
    for name in ("username", "password"):
        if name not in options:
            expected = '`... required username="…" password="…";`'
            raise SettingsError(f"sasl.jaas.config has no {name}: expected {expected}")
    return {name: options[name] for name in ("username", "password")}


def _oauth_options(options: Mapping[str, str]) -> dict[str, str]:
    names = LOGIN_OPTIONS["OAuthBearerLoginModule"]
    given_by: dict[str, tuple[str, str]] = {}
    for name in filter(names.__contains__, options):
        _add(given_by, names[name], f"sasl.jaas.config: {name}", options[name])
    extensions = [
        f"{name.removeprefix(prefix)}={value}"
        for name, value in options.items()
        for prefix in EXTENSION_PREFIXES
        if name.startswith(prefix)
    ]
    given = {field: value for field, (_, value) in given_by.items()}
    return given | ({"extensions": ",".join(extensions)} if extensions else {})
