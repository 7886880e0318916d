"""The root of every error suwen raises on purpose; each room derives its own kinds from it."""


class SuwenError(Exception):
    """A problem the caller can act on: the message says what is wrong and how to fix it.

    Anything else that escapes the library is a bug.
    """


class Stopped(SuwenError):
    """Work that was interrupted and can go on: the message says how."""
