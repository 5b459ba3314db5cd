"""Datasets in other people's formats, read into memories and written from them: Minari, the DQN Replay Dataset."""
