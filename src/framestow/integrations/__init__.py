"""Other people's formats and interfaces: one file a library, and rooms for what several of them share."""
