"""What processes write where a person reads it: text without characters that act on a terminal, and the log.

The log of every process is one JSON object per line on stderr.
"""

import json
import logging
import re
import sys
import time
from typing import Final

_RARE: Final = re.compile(r"[^\n\t -~]")
"""What may be unprintable: all but printable ASCII, line ends and tabs."""
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def clean_lines(text: str) -> str:
    """A text of lines for a terminal: what does not print (escapes, C1, bidirectional overrides) becomes a space."""
    return _RARE.sub(lambda found: found[0] if found[0].isprintable() else " ", text)


def clean(text: str) -> str:
    """A text for one line of a terminal: as `clean_lines`, and line ends and tabs become spaces too."""
    return text if text.isprintable() else clean_lines(text).replace("\n", " ").replace("\t", " ")


def escaped(text: str) -> str:
    """JSON or YAML whose strings hold what does not print as `\\u` escapes: the same data, and safe on a terminal.

    In YAML the strings with such characters must be in double quotes.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    return _RARE.sub(lambda found: found[0] if found[0].isprintable() else _escape(found[0]), text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


class JsonLines(logging.Formatter):
    """One JSON object per line: a constant message, its data beside it."""

    def format(self, record: logging.LogRecord) -> str:
        data = {key: value for key, value in vars(record).items() if key not in _OWN}
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return escaped(json.dumps(line | data, default=str, ensure_ascii=False))


def set_up_logging(level: str) -> None:
    """Log to stderr from this level on: `debug`, `info`, `warning` or `error`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for noisy in ("aiokafka", "kubernetes"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # A rejoin is how groups work; the driver calls it an error.
    logging.getLogger("aiokafka.consumer.group_coordinator").setLevel(logging.CRITICAL)
    logging.getLogger("aiokafka.coordinator").setLevel(logging.CRITICAL)
