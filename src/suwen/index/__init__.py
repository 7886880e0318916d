"""Engines that store and find passages. No encoders."""
