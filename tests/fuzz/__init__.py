"""Damages small valid inputs at random and reads them: each must be accepted, or refused by an `InputError`.

`test_fuzz.py` runs the cases of all kinds; `corpus/` holds inputs that once failed.
"""
