"""Permissions of `fleethpa topics acls`, given on a broker that enforces them."""

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code
from aiokafka.protocol.admin import CreateAclsRequest

from runtime.acls import ACLS, Acl, Component
from runtime.kafkaclients import aiokafka_kwargs
from schemas.connection import KafkaSettings

_RESOURCES = {"topic": 2, "group": 3}
_PATTERNS = {"literal": 3, "prefixed": 4}
_OPERATIONS = {"READ": 3, "WRITE": 4, "CREATE": 5, "DESCRIBE": 8, "DESCRIBE_CONFIGS": 10}
_ALLOW = 3


def _acl_codes(acl: Acl, principal: str, operation: str) -> tuple[int, str, int, str, str, int, int]:
    return (
        _RESOURCES[acl.resource],
        acl.name,
        _PATTERNS[acl.pattern],
        principal,
        "*",
        _OPERATIONS[operation],
        _ALLOW,
    )


async def grant(settings: KafkaSettings, component: Component, principal: str, *, withheld: str = "") -> None:
    """Add the component's permissions for a principal (`User:name`), all but those on the resource `withheld`."""
    admin = AIOKafkaAdminClient(**aiokafka_kwargs(settings))
    await admin.start()
    try:
        for acl in ACLS[component]:
            for operation in acl.operations if acl.name != withheld else ():
                request = CreateAclsRequest(*_acl_codes(acl, principal, operation))
                node = admin._client.get_random_node()
                answer = await admin._client.send(node, request)
                for code, text in answer.creation_responses:
                    assert not code, f"cannot grant {operation} on {acl.name}: {for_code(code).__name__} {text}"
    finally:
        await admin.close()
