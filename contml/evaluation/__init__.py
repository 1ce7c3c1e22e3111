"""Ranking a gallery, and how good the ranking is when labels are a matter of degree."""
