"""Which games an emulator goes on with exactly, from a state that was taken of it."""

GAMES_NOT_RESTORED = ("qbert", "tetris")
"""ROMs that ale-py 0.12.1 takes another course with than the one that was saved, seen by playing both."""
