"""Training: recipes of stages that make a document encoder, the query encoders aligned to it, and the pair to ship.

Opening the room registers every stage of ``stages/``, so that a recipe can be read.
"""

import suwen.training.stages  # noqa: F401
