"""The code of commands: one experiment, several trainings, reports, pages and audits."""
