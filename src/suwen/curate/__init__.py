"""Making of training data: drawing texts, mining negatives, choosing diverse ones, keeping evaluation texts out."""
