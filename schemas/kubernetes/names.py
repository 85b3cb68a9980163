"""What the API server demands of names, and of the keys and values of labels.

Source: k8s.io/apimachinery/pkg/util/validation/validation.go and pkg/api/validate/content v0.37.1.
"""

import re

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_QUALIFIED})?"
_LABEL_PATTERN, _SUBDOMAIN_PATTERN = re.compile(_LABEL), re.compile(_SUBDOMAIN)
_QUALIFIED_PATTERN, _VALUE_PATTERN = re.compile(_QUALIFIED), re.compile(_VALUE)
_QUALIFIED_ERROR = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
    f" (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
_VALUE_ERROR = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and"
    " end with an alphanumeric character"
    f" (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_VALUE}')"
)
_LABEL_ERROR = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with"
    f" an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_SUBDOMAIN_ERROR = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and"
    f" end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)


def dns_label_errors(name: str) -> list[str]:
    """Check a DNS-1123 label: a namespace, a container."""
    errors = [_too_long(63, "characters")] if _size(name) > 63 else []
    if _LABEL_PATTERN.fullmatch(name):
        return errors
    return [*errors, "must not contain dots" if _SUBDOMAIN_PATTERN.fullmatch(name) else _LABEL_ERROR]


def dns_subdomain_errors(name: str, unit: str = "characters") -> list[str]:
    """Check a DNS-1123 subdomain: an object's name, the prefix of a key. Upstream counts bytes, whatever it says."""
    errors = [_too_long(253, unit)] if _size(name) > 253 else []
    return errors if _SUBDOMAIN_PATTERN.fullmatch(name) else [*errors, _SUBDOMAIN_ERROR]


def label_key_errors(key: str) -> list[str]:
    """Check the key of a label, an annotation or a resource: a name with an optional subdomain and slash."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        optional = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {_QUALIFIED_ERROR}{optional}"]
    errors = _prefix_errors(prefix) if slash else []
    if not name:
        errors.append("name part must be non-empty")
    elif _size(name) > 63:
        errors.append(f"name part {_too_long(63, 'bytes')}")
    if not _QUALIFIED_PATTERN.fullmatch(name):
        errors.append(f"name part {_QUALIFIED_ERROR}")
    return errors


def label_value_errors(value: str) -> list[str]:
    """Check the value of a label."""
    errors = [_too_long(63, "bytes")] if _size(value) > 63 else []
    return errors if _VALUE_PATTERN.fullmatch(value) else [*errors, _VALUE_ERROR]


def path_segment_errors(name: str) -> list[str]:
    """Check what becomes one segment of a URL."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return path_segment_prefix_errors(name)


def path_segment_prefix_errors(prefix: str) -> list[str]:
    """Check what a segment of a URL begins with; something is to follow."""
    return [f"may not contain '{char}'" for char in "/%" if char in prefix]


def _prefix_errors(prefix: str) -> list[str]:
    if not prefix:
        return ["prefix part must be non-empty"]
    return [f"prefix part {error}" for error in dns_subdomain_errors(prefix, "bytes")]


def _too_long(limit: int, unit: str) -> str:
    return f"must be no more than {limit} {unit}"


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
