"""API versions: `group/version`, or the version alone for the core group."""


def parse_group_version(text: str) -> tuple[str, str]:
    """Give the group of an API version, and what is wrong with it. Empty and `/` have an empty group.

    Source: apimachinery `schema.ParseGroupVersion`.
    """
    if text.count("/") > 1:
        return "", f"unexpected GroupVersion string: {text}"
    return text.rpartition("/")[0], ""


def group_of(text: str) -> str:
    """Give the group of an API version, empty for the core group; one of more than two parts has none."""
    return parse_group_version(text)[0]
