"""Checkpoints: tests, and what they share."""
