"""The documented keys of a Kafka client's configuration, and what becomes of each: it is used, has no effect here, or
is refused by name with what to write instead. Pure.

A key that says who we are, whom we trust or what we connect to is never dropped in silence. Those that only tune a
client have no effect, as fleethpa's clients have settings of their own; so have those of other programs that often
share the file (a schema registry's).

Source: org.apache.kafka.clients.{CommonClientConfigs, admin.AdminClientConfig, consumer.ConsumerConfig,
producer.ProducerConfig}, common.config.{SslConfigs, SaslConfigs, SecurityConfig} of Kafka 4.3; librdkafka 2.11
CONFIGURATION.md.
"""

import re
from collections.abc import Mapping
from typing import Final


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


USED: Final[Mapping[str, str]] = {
    "bootstrap.servers": "bootstrap_servers",
    "client.id": "client_id",
    "client.rack": "client_rack",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.oauthbearer.token.endpoint.url": "token_endpoint",
    "sasl.oauthbearer.scope": "scope",
    "sasl.oauthbearer.client.credentials.client.id": "username",
    "sasl.oauthbearer.client.credentials.client.secret": "password",
    "ssl.truststore.location": "cafile",
    "ssl.truststore.certificates": "cafile",
    "ssl.keystore.location": "certfile",
    "ssl.keystore.certificate.chain": "certfile",
    "ssl.keystore.key": "keyfile",
    "ssl.key.password": "key_password",
    # librdkafka's names of the same
    "metadata.broker.list": "bootstrap_servers",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "username",
    "sasl.password": "password",
    "sasl.oauthbearer.client.id": "username",
    "sasl.oauthbearer.client.secret": "password",
    "sasl.oauthbearer.extensions": "extensions",
    "ssl.ca.location": "cafile",
    "ssl.ca.pem": "cafile",
    "ssl.certificate.location": "certfile",
    "ssl.certificate.pem": "certfile",
    "ssl.key.location": "keyfile",
    "ssl.key.pem": "keyfile",
}
"""Key → field of `KafkaSettings`. Those of a certificate or key take a file's name or the PEM text itself."""

ONLY: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "ssl.endpoint.identification.algorithm": (("https", "", "none"), "https, or nothing to leave the name unchecked"),
    "ssl.keystore.type": (("pem",), "PEM"),
    "ssl.truststore.type": (("pem",), "PEM"),
    "ssl.trustmanager.algorithm": (("pkix", "sunx509"), "leave it out"),
    "ssl.keymanager.algorithm": (("pkix", "sunx509", "newsunx509"), "leave it out"),
    "sasl.client.callback.handler.class": (
        ("software.amazon.msk.auth.iam.iamclientcallbackhandler",),
        "sign in by one of the mechanisms of sasl.mechanism, without a class of Java; with MSK by AWS_MSK_IAM",
    ),
    "sasl.login.callback.handler.class": (
        (
            "org.apache.kafka.common.security.oauthbearer.oauthbearerlogincallbackhandler",
            "org.apache.kafka.common.security.oauthbearer.secured.oauthbearerlogincallbackhandler",
            "io.strimzi.kafka.oauth.client.jaasclientoauthlogincallbackhandler",
        ),
        "use sasl.oauthbearer.token.endpoint.url with a client's id and secret, or with MSK sasl.mechanism AWS_MSK_IAM",
    ),
    "sasl.oauthbearer.jwt.retriever.class": (
        (
            "org.apache.kafka.common.security.oauthbearer.defaultjwtretriever",
            "org.apache.kafka.common.security.oauthbearer.clientcredentialsjwtretriever",
        ),
        "use a client's id and secret",
    ),
    "sasl.oauthbearer.method": (("oidc",), "oidc"),
    "sasl.oauthbearer.grant.type": (("client_credentials",), "client_credentials"),
    "sasl.oauthbearer.metadata.authentication.type": (("none",), "none"),
    "enable.ssl.certificate.verification": (
        ("true",),
        "name the authority of the brokers in ssl.truststore.location, and let them be verified",
    ),
    "enable.sasl.oauthbearer.unsecure.jwt": (("false",), "false"),
}
"""Keys that may have these values alone (in any case); beside them, what to write instead."""

_HANDLER = "fleethpa loads no class of Java: leave it out"
_ISSUER = "fleethpa signs in with a client's id and secret: sasl.oauthbearer.client.credentials.client.id and ….secret"
_CALLER = "write it as an option of the login module in sasl.jaas.config"
REFUSED: Final[Mapping[str, str]] = {
    "bootstrap.controllers": "name the brokers in bootstrap.servers",
    "config.providers": "write the values themselves, or set FLEETHPA_KAFKA_… variables from a Secret",
    "security.providers": _HANDLER,
    "ssl.engine.factory.class": _HANDLER,
    "ssl.provider": _HANDLER,
    "sasl.login.class": _HANDLER,
    "sasl.oauthbearer.config": "use sasl.oauthbearer.client.credentials.client.id, ….client.secret and ….scope",
    "sasl.oauthbearer.assertion.algorithm": _ISSUER,
    "sasl.oauthbearer.assertion.claim.aud": _ISSUER,
    "sasl.oauthbearer.assertion.claim.exp.seconds": _ISSUER,
    "sasl.oauthbearer.assertion.claim.iss": _ISSUER,
    "sasl.oauthbearer.assertion.claim.jti.include": _ISSUER,
    "sasl.oauthbearer.assertion.claim.nbf.seconds": _ISSUER,
    "sasl.oauthbearer.assertion.claim.sub": _ISSUER,
    "sasl.oauthbearer.assertion.file": _ISSUER,
    "sasl.oauthbearer.assertion.jwt.template.file": _ISSUER,
    "sasl.oauthbearer.assertion.private.key.file": _ISSUER,
    "sasl.oauthbearer.assertion.private.key.passphrase": _ISSUER,
    "sasl.oauthbearer.assertion.private.key.pem": _ISSUER,
    "sasl.oauthbearer.assertion.template.file": _ISSUER,
    "https.ca.location": "name the authority of the issuer in ssl.truststore.location, which is trusted for it, too",
    "https.ca.pem": "name the authority of the issuer in ssl.truststore.certificates, which is trusted for it, too",
    "ssl.ca.certificate.stores": "name the authority in ssl.truststore.location",
    "ssl.crl.location": "fleethpa reads no revocation list: leave it out",
    "ssl.engine.location": "fleethpa loads no engine of OpenSSL: leave it out",
    "ssl.engine.id": "fleethpa loads no engine of OpenSSL: leave it out",
    "ssl.providers": "fleethpa loads no provider of OpenSSL: leave it out",
    "plugin.library.paths": "fleethpa loads no library of librdkafka: leave it out",
    "sasl.kerberos.principal": "use a mechanism of sasl.mechanism other than GSSAPI",
    "sasl.kerberos.keytab": "use a mechanism of sasl.mechanism other than GSSAPI",
}

REFUSED_PREFIXES: Final[Mapping[str, str]] = {
    "config.providers.": REFUSED["config.providers"],
    "oauth.": _CALLER,
    "strimzi.": _CALLER,
}

HARMLESS: Final[frozenset[str]] = _names(
    """
    allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset check.crcs
    client.dns.lookup connections.max.idle.ms default.api.timeout.ms default.key.serde default.value.serde
    enable.auto.commit enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes
    group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes
    internal.leave.group.on.close isolation.level key.deserializer key.serializer max.partition.fetch.bytes
    max.poll.interval.ms max.poll.records metadata.max.age.ms metadata.max.idle.ms metadata.recovery.strategy
    metadata.recovery.rebootstrap.trigger.ms metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms partition.assignment.strategy receive.buffer.bytes reconnect.backoff.max.ms
    reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms send.buffer.bytes
    session.timeout.ms share.acknowledgement.mode share.acquire.mode socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms value.deserializer value.serializer acks batch.size buffer.memory
    compression.gzip.level compression.lz4.level compression.type compression.zstd.level delivery.timeout.ms
    enable.idempotence linger.ms max.block.ms max.in.flight.requests.per.connection max.request.size
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
    partitioner.ignore.keys transaction.timeout.ms transaction.two.phase.commit.enable transactional.id
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.connect.timeout.ms
    sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms
    sasl.login.retry.backoff.ms sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
    sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode sasl.oauthbearer.iat.validation.enabled
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    ssl.cipher.suites ssl.curves.list ssl.enabled.protocols ssl.keystore.password ssl.protocol
    ssl.secure.random.implementation ssl.sigalgs.list ssl.truststore.password builtin.features debug
    internal.termination.signal log_level opaque retries.max
    """
)
"""Keys that only tune a client, and passwords of stores, which PEM files have not."""

HARMLESS_PREFIXES: Final[tuple[str, ...]] = (
    *("schema.registry.", "basic.auth.", "bearer.auth.", "auto.register.", "use.latest.", "specific.avro."),
    *("confluent.monitoring.", "confluent.license", "confluent.topic", "confluent.metrics."),
    *("api.version.", "auto.commit.", "background.", "batch.", "broker.", "check.", "compression.", "connections."),
    *("consume.", "consume_", "coordinator.", "dr_", "delivery.", "enable.gapless", "enable.auto.offset.store"),
    *("enable.partition.eof", "enable.random.seed", "enable.metrics", "error_cb", "fetch.", "group.", "log.", "log_"),
    *("max.", "message.", "metadata.", "msg_order", "offset.", "offset_", "open_cb", "produce.", "queue.", "queued."),
    *("queuing.", "rebalance_", "receive.", "reconnect.", "request.", "retry.", "socket.", "socket_", "statistics."),
    *("stats_", "sticky.", "throttle_", "topic.", "topics.", "transaction.", "background_", "closesocket_"),
)
"""Of a schema registry, of Confluent's tools and of librdkafka's tuning."""

_IS_NAME = re.compile(r"[a-z][a-z0-9]*(?:[._-][a-z0-9]+)+|[a-z]{3,20}").fullmatch


def refusal(key: str, value: str) -> str:
    """Return why a key with this value is refused, and what to write instead; empty: it is used, or has no effect.

    The text has the key, if it has the form of one, and never the value: it may be a secret.
    """
    if key in USED or key == "sasl.jaas.config" or key in HARMLESS:
        return ""
    if key in ONLY:
        values, instead = ONLY[key]
        return "" if value.strip().lower() in values else f"{key} has a value that fleethpa cannot use: {instead}"
    if key in REFUSED:
        return f"{key} is not supported: {REFUSED[key]}"
    for prefix, instead in REFUSED_PREFIXES.items():
        if key.startswith(prefix):
            return f"{key} is not supported: {instead}"
    if key.startswith(HARMLESS_PREFIXES):
        return ""
    if not _IS_NAME(key):
        return "a line has a name that no key of Kafka's clients has: is a value longer than its line?"
    return f"{key} is not a key of Kafka's clients that fleethpa knows: correct it, or leave it out"


# --- options of login modules -----------------------------------------------------------------------------------------

_AWS = "set it in the environment of the process, where AWS's libraries look for it"
LOGIN_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "ScramLoginModule": {"username": "username", "password": "password"},
    "PlainLoginModule": {"username": "username", "password": "password"},
    "OAuthBearerLoginModule": {
        "clientId": "username",
        "clientSecret": "password",
        "scope": "scope",
        "oauth.client.id": "username",
        "oauth.client.secret": "password",
        "oauth.scope": "scope",
        "oauth.token.endpoint.uri": "token_endpoint",
    },
    "IAMLoginModule": {},
}
"""Login module → its options that are used → fields of `KafkaSettings`."""

HARMLESS_OPTIONS: Final[frozenset[str]] = _names(
    """
    awsDebugCreds awsMaxRetries awsMaxBackOffTimeMs serviceName oauth.connect.timeout.seconds
    oauth.read.timeout.seconds oauth.http.retries oauth.http.retry.pause.millis oauth.enable.metrics
    oauth.max.token.expiry.seconds oauth.access.token.is.jwt oauth.include.accept.header oauth.username.claim
    oauth.username.prefix oauth.fallback.username.claim oauth.fallback.username.prefix oauth.ssl.truststore.password
    """
)

REFUSED_OPTIONS: Final[Mapping[str, str]] = {
    "awsProfileName": f"{_AWS}: AWS_PROFILE",
    "awsRoleArn": f"{_AWS}: AWS_ROLE_ARN, or a profile with role_arn",
    "awsRoleAccessKeyId": f"{_AWS}: AWS_ACCESS_KEY_ID",
    "awsRoleSecretAccessKey": f"{_AWS}: AWS_SECRET_ACCESS_KEY",
    "awsRoleSessionToken": f"{_AWS}: AWS_SESSION_TOKEN",
    "awsRoleSessionName": f"{_AWS}: AWS_ROLE_SESSION_NAME",
    "awsRoleExternalId": "write a profile with external_id, and name it in AWS_PROFILE",
    "awsStsRegion": f"{_AWS}: AWS_STS_REGIONAL_ENDPOINTS and AWS_REGION",
    "tokenauth": "fleethpa signs in as a user, not with a delegation token",
    "oauth.access.token": _ISSUER,
    "oauth.access.token.location": _ISSUER,
    "oauth.refresh.token": _ISSUER,
    "oauth.refresh.token.location": _ISSUER,
    "oauth.password.grant.username": _ISSUER,
    "oauth.password.grant.password": _ISSUER,
    "oauth.client.assertion": _ISSUER,
    "oauth.client.assertion.location": _ISSUER,
    "oauth.client.assertion.type": _ISSUER,
    "oauth.audience": "ask the issuer to name the audience by the scope",
    "oauth.client.credentials.grant.type": _ISSUER,
    "oauth.grant.type": _ISSUER,
    "oauth.client.secret.location": "write the secret itself into oauth.client.secret",
    "oauth.ssl.truststore.location": "name the authority of the issuer in ssl.truststore.location",
    "oauth.ssl.truststore.certificates": "name the authority of the issuer in ssl.truststore.certificates",
    "oauth.ssl.truststore.type": "name the authority of the issuer in ssl.truststore.location, as PEM",
    "oauth.ssl.endpoint.identification.algorithm": "let the issuer's name be verified: leave it out",
    "oauth.ssl.secure.random.implementation": "leave it out",
    "oauth.custom.": "leave it out",
    "unsecuredLoginStringClaim_": _ISSUER,
    "unsecuredLoginNumberClaim_": _ISSUER,
    "unsecuredLoginListClaim_": _ISSUER,
}
"""Option, or what its name begins with, → what to do instead."""

_MODULES: Final[Mapping[str, str]] = {"Krb5LoginModule": "use a mechanism of sasl.mechanism other than GSSAPI"}
"""Login module that is refused → what to do instead."""
EXTENSION_PREFIXES: Final = ("extension_", "oauth.sasl.extension.")


def module_refusal(module: str) -> str:
    """Return why a login module is refused, whatever its options; empty: it is not."""
    return f"sasl.jaas.config: {module} is not supported: {_MODULES[module]}" if module in _MODULES else ""


def option_refusal(module: str, option: str) -> str:
    """Return why an option of a login module is refused; empty: it is used, or has no effect. Never its value."""
    # A module of another name is taken as one of user name and password.
    used = LOGIN_OPTIONS.get(module, LOGIN_OPTIONS["PlainLoginModule"])
    is_extension = module == "OAuthBearerLoginModule" and option.startswith(EXTENSION_PREFIXES)
    if option in used or option in HARMLESS_OPTIONS or is_extension:
        return ""
    for name, instead in REFUSED_OPTIONS.items():
        if option == name or (name.endswith(("_", ".")) and option.startswith(name)):
            return f"sasl.jaas.config: {option} is not supported: {instead}"
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9._]{0,60}", option):
        return "sasl.jaas.config has an option whose name cannot be read: is a value without quotes?"
    return f"sasl.jaas.config: {option} is not an option that fleethpa knows: leave it out"
