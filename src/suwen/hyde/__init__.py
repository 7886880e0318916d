"""Hypothetical documents: written by a language model, checked, and fused with the query as vectors. Trains nothing.

Gao et al. (2023) look for what an answer might say in place of the question; SL-HyDE (AutoMIR) learns to write it from
unlabelled text.
"""

from suwen.errors import SuwenError


class HydeError(SuwenError):
    """Hypothetical documents that cannot be written or used as asked."""
