"""Atari games as environments: names, recipes, screens, and the state that a run resumes from."""
