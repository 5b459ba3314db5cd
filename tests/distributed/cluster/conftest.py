"""These programs need Ray: `make distributed` runs them."""

collect_ignore_glob = ["*.py"]
