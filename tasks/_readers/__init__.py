"""Shared by the readers of data sets: folders, text and CSV files, MATLAB files, COCO annotation files, splits."""
