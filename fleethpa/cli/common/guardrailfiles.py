"""Files of guardrails, read and checked."""

from __future__ import annotations

from pathlib import Path

import msgspec

from fleethpa.cli.common.failures import usage
from schemas.guardrails import Guardrails, problems
from schemas.yamltext import YamlTextError, parse_yaml


def read_guardrails(file: Path) -> tuple[Guardrails | None, list[str]]:
    """Read a file of rules and say what is wrong with it; None: its form is wrong.

    Raises:
        CommandError: there is no such file, or it is not YAML (exit 2).
    """
    try:
        document = parse_yaml(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"{file} cannot be read", cause=str(error)) from error
    except YamlTextError as error:
        raise usage(f"{file} is not YAML", cause=str(error)) from error
    try:
        rules = msgspec.convert(document, Guardrails)
    except msgspec.ValidationError as error:
        return None, [str(error)]
    return rules, problems(rules)


def usable_guardrails(file: Path) -> Guardrails:
    """Read a file of rules.

    Raises:
        CommandError: it cannot be used (exit 2).
    """
    rules, found = read_guardrails(file)
    if rules is None or found:
        raise usage(f"{file} cannot be used", cause="; ".join(found), next_step=f"fleethpa guardrails lint {file}")
    return rules
