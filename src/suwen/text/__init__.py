"""Text as characters: fold, clean, split, segment. Knows nothing of documents."""
