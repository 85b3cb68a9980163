"""Why a file cannot be checked."""


class InputError(Exception):
    """A file is missing, unreadable or of no known kind; the message names it and says what to do."""


class UnknownKindError(InputError):
    """The content is of no known kind."""
