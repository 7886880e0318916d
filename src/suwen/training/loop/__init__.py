"""The training loop and what it keeps on the disk. Knows no stage and no loss."""
