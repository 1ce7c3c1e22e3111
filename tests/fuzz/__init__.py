"""Damages small valid inputs at random and reads them: each must be accepted, or refused by an `InputError`.

`python -m tests.fuzz --cases 10000` runs cases of all kinds; `corpus/` holds inputs that once failed.
"""
