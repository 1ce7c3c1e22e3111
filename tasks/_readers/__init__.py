"""Readers that data sets share: folders, text and CSV files, MATLAB files, COCO annotation files, splits."""
