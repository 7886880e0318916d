"""Asking language models: the chat client, its cache and ledger, checked replies, prompts. Knows nothing of judging."""
