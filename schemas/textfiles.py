"""The encoding of text files that people hand over."""

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE


def decode_text(content: bytes) -> str:
    """Return the text of a file: UTF-8, or UTF-16 behind a byte order mark, which Windows PowerShell's `>` writes.

    Raises UnicodeDecodeError: it is neither.
    """
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return content.decode("utf-16")
    return content.removeprefix(BOM_UTF8).decode("utf-8")
