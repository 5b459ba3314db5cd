"""The parts of TorchRL's drop-in storage: what comes, where it goes, how it is given and saved."""
