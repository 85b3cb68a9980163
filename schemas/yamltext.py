"""Reading YAML text that people or other systems wrote, with one error for all that can be wrong with it."""

from typing import Any

import yaml


class YamlTextError(ValueError):
    """The text is not YAML that can be used; the message says why, over several lines where it shows the place."""


def parse_yaml(text: str) -> Any:
    """Read one document; None: it is empty.

    Raises:
        YamlTextError: not YAML, several documents, nested too deeply, or a date or number that cannot be.
    """
    try:
        return yaml.safe_load(text)
    except RecursionError as error:
        raise YamlTextError("nested too deeply") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # ValueError: 2024-13-45, a number of 5,000 digits
        raise YamlTextError(str(error)) from error
