"""Permissions of `fleethpa admin topics acls`, given on a broker that enforces them."""

from runtime.topicadmin import TopicAdmin
from runtime.topicneeds import ACLS, Component
from schemas.connection import KafkaSettings


async def grant(settings: KafkaSettings, component: Component, principal: str, *, withheld: str = "") -> None:
    """Add the component's permissions for a principal (`User:name`), all but those on the resource `withheld`."""
    async with TopicAdmin(settings) as admin:
        assert await admin.allow([acl for acl in ACLS[component] if acl.name != withheld], principal)
