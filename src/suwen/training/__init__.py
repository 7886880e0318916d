"""Making and exporting models. Needs the extra ``train``."""
