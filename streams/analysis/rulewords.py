"""The rules by which an HPA is decided, in words."""

from streams.hpa.rules import NEWEST, OLDEST, minor_of


def rules_in_words(text: str) -> str:
    """Say for people by which rules `rules_text` decides: also that the version itself is not a known one.

    Raises UnknownRulesError: the text is none of `rules_text`.
    """
    version, _, gates = text.partition(" ")
    minor = minor_of(version)
    known = min(max(minor, OLDEST), NEWEST)
    named = f"1.{known} {gates}".rstrip()
    if minor == known:
        return named
    return f"{named} (the {'newest' if minor > known else 'oldest'} that are known: those of 1.{minor} are not)"
