"""Kafka connection settings: files, environment, and what shows in a log."""

import pytest
from aiokafka.conn import get_ip_port_afi

from schemas.connection import KafkaSettings, SettingsError, aiokafka_kwargs, gather

SCRAM = """
# written for the Java tools
bootstrap.servers = kafka-1:9093,kafka-2:9093
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="decider" password="pa\\\\"ss=1;";
ssl.truststore.type=PEM
ssl.truststore.location=/etc/kafka/ca.pem
request.timeout.ms=30000
"""


def test_a_java_client_properties_file_is_read() -> None:
    assert gather({}, properties=SCRAM) == KafkaSettings(
        bootstrap_servers="kafka-1:9093,kafka-2:9093",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        username="decider",
        password='pa"ss=1;',
        cafile="/etc/kafka/ca.pem",
    )


def test_aiokafka_gets_every_setting_but_the_ssl_context() -> None:
    assert aiokafka_kwargs(gather({}, properties=SCRAM)) == {
        "bootstrap_servers": ["kafka-1:9093", "kafka-2:9093"],
        "client_id": "fleethpa",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "decider",
        "sasl_plain_password": 'pa"ss=1;',
    }


OAUTH = """bootstrap.servers=k:9
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
client.rack=eu-west-1a
sasl.oauthbearer.token.endpoint.url=https://issuer.example.com/token
sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler
sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \\
  clientId="decider" clientSecret="s=1;" scope="kafka" extension_logicalCluster="lkc-1";
"""
CREDENTIALS = (
    OAUTH.partition("sasl.jaas.config")[0]
    + """sasl.oauthbearer.scope=kafka
sasl.oauthbearer.client.credentials.client.id=decider
sasl.oauthbearer.client.credentials.client.secret=s=1;
"""
)


@pytest.mark.parametrize(
    ("text", "extensions"),
    [
        pytest.param(OAUTH, {"logicalCluster": "lkc-1"}, id="in the login module's line"),
        pytest.param(CREDENTIALS, {}, id="in properties of their own (Kafka 4.1)"),
    ],
)
def test_a_client_of_an_issuer_is_read_as_java_clients_write_it(text: str, extensions: dict[str, str]) -> None:
    settings = gather({}, properties=text)
    assert settings.uses_tokens
    assert (settings.username, settings.password, settings.scope) == ("decider", "s=1;", "kafka")
    assert settings.token_endpoint == "https://issuer.example.com/token"
    assert settings.client_rack == "eu-west-1a"
    assert settings.extension_values == extensions
    assert "s=1;" not in repr(settings)


def test_msk_is_read_as_its_java_library_writes_it() -> None:
    login = "software.amazon.msk.auth.iam.IAMLoginModule required;"
    text = f"security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\nsasl.jaas.config={login}"
    settings = gather({}, properties=text)
    assert settings.uses_tokens
    assert aiokafka_kwargs(settings)["sasl_mechanism"] == "OAUTHBEARER"


def test_the_environment_goes_over_the_file() -> None:
    environ = {"FLEETHPA_KAFKA_PASSWORD": "other", "FLEETHPA_KAFKA_CLIENT_ID": "a", "HOME": "/"}
    settings = gather(environ, properties=SCRAM)
    assert (settings.username, settings.password, settings.client_id) == ("decider", "other", "a")


def test_a_password_never_shows() -> None:
    shown = repr(KafkaSettings(security_protocol="SASL_SSL", username="u", password="hunter2"))
    assert "hunter2" not in shown
    assert "username='u'" in shown


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("security.protocol=TLS", "security.protocol must be one of", id="an unknown protocol"),
        pytest.param("security.protocol=SASL_SSL", "needs a username", id="SASL without a user"),
        pytest.param("sasl.mechanism=GSSAPI", "sasl.mechanism must be one of", id="an unsupported mechanism"),
        pytest.param("bootstrap.servers=", "name at least one broker", id="no broker"),
        pytest.param("bootstrap.servers= , ", "name at least one broker", id="commas alone"),
        pytest.param("bootstrap.servers=a:abc", "a number from 1 to 65535, got 'abc'", id="a port that is a text"),
        pytest.param("bootstrap.servers=a:", "a number from 1 to 65535, got ''", id="no port behind the colon"),
        pytest.param("bootstrap.servers=a:0", "a number from 1 to 65535", id="port 0"),
        pytest.param("bootstrap.servers=a:65536", "a number from 1 to 65535", id="a port beyond 16 bits"),
        pytest.param("bootstrap.servers=a:-1", "a number from 1 to 65535", id="a negative port"),
        pytest.param("bootstrap.servers=a:٣", "a number from 1 to 65535", id="digits of another script"),
        pytest.param("bootstrap.servers=a:1,b:x", "'b:x'", id="the second of two"),
        pytest.param("bootstrap.servers=:9092", "is not host:port", id="no host"),
        pytest.param("bootstrap.servers=a b:9092", "is not host:port", id="a space in a host"),
        pytest.param("bootstrap.servers=a:1:2", "is not host:port", id="two ports"),
        pytest.param("bootstrap.servers=[::1", "is not host:port", id="an open bracket"),
        pytest.param("bootstrap.servers=[nonsense]:1", "is not host:port", id="brackets around a name"),
        pytest.param("bootstrap.servers=SSL://a:1", "has a scheme", id="a listener's address"),
        pytest.param("ssl.keystore.key=/k.pem", "needs its certificate", id="a key without its certificate"),
        pytest.param("ssl.truststore.location=/t.jks\nssl.truststore.type=JKS", "PEM", id="a Java key store"),
        pytest.param(OAUTH.replace("https:", "http:"), "in the clear: use https", id="a secret over plain HTTP"),
        pytest.param(OAUTH.replace("https:", "file:"), "an https URL", id="an endpoint that is a file"),
        pytest.param(OAUTH.replace('clientSecret="s=1;"', ""), "id and secret", id="a client without secret"),
        pytest.param(OAUTH.replace("lkc-1", "a\u0001"), "extensions must be name=value", id="a separator in a value"),
        pytest.param(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=AWS_MSK_IAM", "needs security.protocol SASL_SSL", id="MSK"
        ),
        pytest.param("nonsense", "expected name=value", id="a line that is no property"),
        pytest.param('sasl.jaas.config=X required username="u";', "has no password", id="a login without password"),
        pytest.param('sasl.jaas.config=X required username="u', "no closing quote", id="an open quote"),
    ],
)
def test_settings_that_cannot_be_used_say_what_to_do(text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        gather({}, properties=text)


@pytest.mark.parametrize(
    "servers",
    ["a", "kafka-0.example.com:9092", "a_b:1", "10.0.0.1:65535,b:2,", "[::1]:9092", "::1", "[fe80::1%eth0]:1"],
)
def test_addresses_that_the_driver_takes_are_taken(servers: str) -> None:
    settings = KafkaSettings(bootstrap_servers=servers)
    assert settings.servers == [each for each in servers.split(",") if each]
    assert all(get_ip_port_afi(server)[1] > 0 for server in settings.servers)


def test_a_misspelt_variable_is_named() -> None:
    with pytest.raises(SettingsError, match="FLEETHPA_KAFKA_PASWORD is not a setting"):
        gather({"FLEETHPA_KAFKA_PASWORD": "x"})


def test_the_environment_wins_over_the_file_and_the_flag_over_both() -> None:
    text = "bootstrap.servers=file:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
    text += 'sasl.jaas.config=x required username="file" password="file";'
    environ = {"FLEETHPA_KAFKA_CONFIG": "/etc/client.properties", "FLEETHPA_KAFKA_PASSWORD": "environment"}
    environ |= {"FLEETHPA_KAFKA_BOOTSTRAP_SERVERS": "environment:1"}
    settings = gather(environ, properties=text)
    assert (settings.bootstrap_servers, settings.username, settings.password) == (
        "environment:1",
        "file",
        "environment",
    )
    assert gather(environ, properties=text, brokers="flag:1").bootstrap_servers == "flag:1"
    assert gather({}) == KafkaSettings()
