"""Why a file cannot be checked."""


class InputError(Exception):
    """A file is missing, unreadable or of no known kind; the message names it and says what is wrong."""


class MissingFileError(InputError):
    """There is no such file."""


class UnknownFileKindError(InputError):
    """The content is of no known kind."""
