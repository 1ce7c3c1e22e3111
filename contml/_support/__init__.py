"""Helpers that several packages share: errors, checks of numbers, files, progress, lazy imports."""
