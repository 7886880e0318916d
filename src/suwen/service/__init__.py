"""The HTTP API and the web pages over one open index. Knows retrieve and jury, nothing of training."""
