"""A table of one's own: a CSV or Parquet file of image paths and labels of any kind is a task without code."""

from .file import TableFile

#: Every kind of table by its name in a config, `table/NAME`.
TASKS = {"file": TableFile}
