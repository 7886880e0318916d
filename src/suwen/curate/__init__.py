"""Making benchmarks and training data: choosing, mining, verifying, rewriting, assembling. Trains nothing."""

from suwen.errors import SuwenError


class CurateError(SuwenError):
    """Something that data are to be made from cannot be used."""
