"""Helpers that several packages share, each written once: errors, checks of numbers, files, progress, imports."""
