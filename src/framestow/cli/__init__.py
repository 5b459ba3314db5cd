"""The ``framestow`` command, one file a subcommand."""
