"""Other libraries' replay memories, one file each, each at the setting that suits it best."""
