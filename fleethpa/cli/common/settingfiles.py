"""Files of settings: a line `NAME: VALUE` for each."""

from __future__ import annotations

from pathlib import Path

from fleethpa.cli.common.failures import usage
from schemas.yamltext import YamlTextError, parse_yaml


def settings_in(file: Path) -> tuple[str, ...]:
    """Read a YAML file of settings as `NAME=VALUE` texts.

    Raises:
        CommandError: it cannot be read, or is not a mapping of names to texts, numbers or booleans (exit 2).
    """
    try:
        document = parse_yaml(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YamlTextError) as error:
        raise usage(f"{file} cannot be read", cause=str(error)) from error
    if not isinstance(document, dict):
        raise usage(f"{file} has no settings", cause="It must have a line NAME: VALUE for each setting.")
    for name, value in document.items():
        if not isinstance(value, str | int | float):
            raise usage(f"{file}: {name} has no value that is a text, a number, true or false")
    return tuple(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in document.items()
    )
