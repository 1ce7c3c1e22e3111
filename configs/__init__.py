"""Configs: small YAML files, one folder a task, each runnable and each telling its command and cost at its head."""
