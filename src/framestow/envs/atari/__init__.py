"""Atari games as Gymnasium environments: names of games, presets, frames and saved states."""
