"""The log of every process: one JSON object per line on stderr."""

import json
import logging
import sys
import time

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


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
        return json.dumps(line | data, default=str, ensure_ascii=False)


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
