"""The vector environment of this process, and the code that all vector environments of framestow share."""
