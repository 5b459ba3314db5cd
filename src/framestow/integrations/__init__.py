"""Other people's formats and interfaces, one file each."""
