"""Every documented key of a Kafka client's configuration is used, has no effect, or is refused by name."""

import re
from pathlib import Path

import pytest

from schemas.clientkeys import (
    HARMLESS,
    HARMLESS_OPTIONS,
    LOGIN_OPTIONS,
    ONLY,
    REFUSED,
    REFUSED_OPTIONS,
    REFUSED_PREFIXES,
    USED,
    option_refusal,
    refusal,
)
from schemas.connection import MASK, KafkaSettings, SettingsError, gather

DOCUMENTED = (Path(__file__).parent / "data" / "kafka-client-keys.txt").read_text().split()
"""As the `main` of Kafka's AdminClientConfig, ConsumerConfig and ProducerConfig prints them (4.3)."""
MARKER = "Zq7marker"
FIELDS = set(KafkaSettings.__dataclass_fields__)


@pytest.mark.parametrize("key", DOCUMENTED)
def test_each_documented_key_has_its_place_in_the_table(key: str) -> None:
    tables = [key in USED, key in HARMLESS, key in ONLY, key in REFUSED, key == "sasl.jaas.config"]
    assert tables.count(True) == 1


@pytest.mark.parametrize("key", sorted([*USED, *HARMLESS, *ONLY, *REFUSED, *REFUSED_PREFIXES]))
def test_a_key_that_is_refused_is_named_with_what_to_write_instead_and_without_its_value(key: str) -> None:
    name = f"{key}x" if key.endswith(".") else key
    reason = refusal(name, MARKER)
    is_refused = name not in HARMLESS and name not in USED
    assert bool(reason) is is_refused
    if is_refused:
        assert reason.startswith(name)
        assert len(reason) > len(name) + 10
    assert MARKER not in reason
    assert set(USED.values()) <= FIELDS


@pytest.mark.parametrize(
    "key", ["sasl.jaas.conf", "ssl.truststore.file", "bootstrap_servers", "sasl.oauthbearer.magic"]
)
def test_a_key_that_is_in_no_table_is_refused_by_name(key: str) -> None:
    with pytest.raises(SettingsError, match=f"^{re.escape(key)} is not a key of Kafka's clients"):
        gather({}, properties=f"{key}={MARKER}")


@pytest.mark.parametrize(("key", "values"), [(key, values) for key, (values, _) in ONLY.items()])
def test_a_key_with_few_values_takes_these_in_any_case(key: str, values: tuple[str, ...]) -> None:
    for value in values:
        gather({}, properties=f"{key}={value}")
        gather({}, properties=f"{key}={value.upper()}")


@pytest.mark.parametrize("module", LOGIN_OPTIONS)
@pytest.mark.parametrize("option", [*REFUSED_OPTIONS, "nonsense"])
def test_an_option_of_a_login_module_is_refused_by_name(module: str, option: str) -> None:
    name = f"{option}x" if option.endswith(("_", ".")) else option
    reason = option_refusal(module, name)
    assert reason.startswith(f"sasl.jaas.config: {name} is not")
    line = f'a.b.{module} required username="u" password="p" clientId="u" clientSecret="p" {name}="{MARKER}";'
    with pytest.raises(SettingsError) as refused:
        gather({}, properties=f"sasl.jaas.config={line}")
    assert MARKER not in str(refused.value)


@pytest.mark.parametrize("option", sorted(HARMLESS_OPTIONS))
def test_an_option_that_only_tunes_has_no_effect(option: str) -> None:
    line = f'sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required {option}="1";'
    assert gather({}, properties=line) == KafkaSettings()


PROTOCOLS = ("", "security.protocol=SSL\n", "security.protocol=SASL_SSL\n", "security.protocol=SASL_PLAINTEXT\n")
SHOWN_KEYS = {
    *("bootstrap.servers", "metadata.broker.list", "client.id", "client.rack", "security.protocol", "sasl.mechanism"),
    *("sasl.mechanisms", "sasl.oauthbearer.scope", "ssl.truststore.location", "ssl.ca.location"),
    *("ssl.keystore.location", "ssl.certificate.location"),
    "sasl.oauthbearer.token.endpoint.url",
    *("sasl.username", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id"),
}
"""Known to be harmless: where Kafka is, how it is asked, names of users and files."""
PEM_OF_MARKER = f"-----BEGIN PRIVATE KEY-----{MARKER}-----END PRIVATE KEY-----"


@pytest.mark.parametrize("value", [MARKER, PEM_OF_MARKER, f"https://u:{MARKER}@issuer/t?{MARKER}", f"file:/{MARKER}"])
@pytest.mark.parametrize("key", sorted((set(DOCUMENTED) | set(USED) | set(ONLY) | set(REFUSED)) - SHOWN_KEYS))
def test_no_error_and_no_view_has_the_value_of_a_key_that_may_be_secret(key: str, value: str) -> None:
    for protocol in PROTOCOLS:
        for mechanism in ("SCRAM-SHA-512", "OAUTHBEARER"):
            text = f"{protocol}sasl.mechanism={mechanism}\n" if "mechanism" not in key else protocol
            try:
                settings = gather({}, properties=f"{text}{key}={value}")
            except SettingsError as error:
                shown = str(error)
            else:
                shown = f"{settings!r} {settings} {settings.shown()}"
            assert MARKER not in shown


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            f"ssl.keystore.key=-----BEGIN PRIVATE KEY-----\n{MARKER}\n-----END PRIVATE KEY-----", id="PEM in lines"
        ),
        pytest.param(f"ssl.keystore.key=-----BEGIN PRIVATE KEY-----\n{MARKER}==\n", id="with padding"),
        pytest.param(f'sasl.jaas.config=a.b.ScramLoginModule required username="u" password={MARKER}', id="no quotes"),
        pytest.param(
            f'sasl.jaas.config=a.b.ScramLoginModule required username="u" password="{MARKER}', id="an open quote"
        ),
        pytest.param(
            f'sasl.jaas.config=a.b.ScramLoginModule required user="u" password="{MARKER}";', id="another option"
        ),
        pytest.param(
            f'sasl.jaas.config=OAuthBearerLoginModule required extension_a="\u0001{MARKER}";', id="an extension"
        ),
    ],
)
def test_a_secret_in_the_wrong_place_is_not_shown_either(text: str) -> None:
    for protocol in PROTOCOLS:
        try:
            shown = repr(gather({}, properties=f"{protocol}{text}"))
        except SettingsError as error:
            shown = str(error)
        assert MARKER not in shown


@pytest.mark.parametrize("url", [f"https://u:{MARKER}@i/t?a={MARKER}", f"http://u:{MARKER}@i/", f"ftp://{MARKER}@i"])
def test_of_the_address_of_an_issuer_only_what_is_no_secret_is_shown(url: str) -> None:
    for protocol in PROTOCOLS:
        text = f"{protocol}sasl.mechanism=OAUTHBEARER\nsasl.username=a\nsasl.password=b\n"
        try:
            shown = repr(gather({}, properties=f"{text}sasl.oauthbearer.token.endpoint.url={url}"))
        except SettingsError as error:
            shown = str(error)
        assert MARKER not in shown


def test_every_secret_field_is_masked_in_the_view() -> None:
    names = ("password", "key_password", "keyfile", "extensions")
    settings = KafkaSettings(certfile="c.pem", keyfile=MARKER, password=MARKER, key_password=MARKER, extensions=MARKER)
    assert {settings.shown()[name] for name in names} == {MASK}
    assert MARKER not in repr(settings)


def test_names_of_librdkafka_are_read() -> None:
    text = (
        "security.protocol=SASL_SSL\nsasl.mechanisms=PLAIN\nsasl.username=KEY\nsasl.password=s\nsession.timeout.ms=1\n"
    )
    settings = gather({}, properties=text)
    assert (settings.sasl_mechanism, settings.username, settings.password) == ("PLAIN", "KEY", "s")


def test_options_of_strimzi_are_read() -> None:
    line = (
        "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'oauth.client.id="me" oauth.client.secret="s" oauth.scope="k" oauth.token.endpoint.uri="https://i/token" '
        'oauth.sasl.extension.cluster="c";\n'
        "sasl.login.callback.handler.class=io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler\n"
    )
    settings = gather({}, properties=f"security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n{line}")
    assert (settings.username, settings.password, settings.scope) == ("me", "s", "k")
    assert (settings.token_endpoint, settings.extension_values) == ("https://i/token", {"cluster": "c"})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param(
            "ssl.truststore.location=a.jks", "ssl.truststore.location names a store of Java", id="JKS, no type"
        ),
        pytest.param(
            "ssl.keystore.location=a.P12", "ssl.keystore.location names a store of Java", id="PKCS 12, no type"
        ),
        pytest.param("ssl.keystore.type=JKS", "ssl.keystore.type", id="a type without a file"),
        pytest.param("ssl.truststore.certificates=ca.pem", "ssl.truststore.certificates must be PEM text", id="no PEM"),
        pytest.param(
            "sasl.mechanism=PLAIN\nsasl.mechanisms=OAUTHBEARER", "contradict each other", id="two names of one"
        ),
        pytest.param(
            "ssl.ca.location=a\nssl.truststore.location=b",
            "ssl.ca.location and|ssl.truststore.location and",
            id="two files",
        ),
        pytest.param(
            "oauth.client.id=a", "oauth.client.id is not supported: write it as an option", id="of Strimzi, outside"
        ),
        pytest.param(
            "enable.ssl.certificate.verification=false", "enable.ssl.certificate.verification", id="unverified"
        ),
    ],
)
def test_what_says_whom_we_trust_is_refused_where_it_is_not_used(text: str, named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        gather({}, properties=text)


@pytest.mark.parametrize(("value", "checks"), [("", False), ("https", True), ("HTTPS", True), ("none", False)])
def test_an_empty_identification_algorithm_leaves_the_name_unchecked(value: str, checks: bool) -> None:
    assert gather({}, properties=f"ssl.endpoint.identification.algorithm={value}").checks_hostname is checks
    assert gather({}).checks_hostname


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("\xef\xbb\xbfclient.id=a", "byte order mark", id="UTF-8 of an editor of Windows"),
        pytest.param("\xff\xfec\0l\0i\0", "byte order mark", id="UTF-16 of Windows PowerShell"),
        pytest.param(
            'sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true principal="k@R";',
            "Krb5LoginModule is not supported: use a mechanism",
            id="the login module of Kerberos, and not its first option",
        ),
        pytest.param(
            "sasl.login.callback.handler.class=software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
            "with MSK sasl.mechanism AWS_MSK_IAM",
            id="a token of MSK",
        ),
    ],
)
def test_a_file_of_another_client_is_refused_with_what_there_is_instead(text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        gather({}, properties=text)


@pytest.mark.parametrize("protocol", ["sasl_ssl", "Sasl_Ssl", "SASL_SSL"])
def test_a_protocol_is_read_in_any_case(protocol: str) -> None:
    """As Java's and librdkafka's clients do: in files of the second it is written in lower case."""
    text = f"security.protocol={protocol}\nsasl.mechanisms=PLAIN\nsasl.username=u\nsasl.password=p"
    assert gather({}, properties=text).security_protocol == "SASL_SSL"
