"""What the readers of data sets share, each once: folders, text and tables, MATLAB files, COCO's files, splits."""
