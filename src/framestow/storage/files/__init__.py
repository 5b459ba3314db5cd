"""Durable files: operations on the disk, manifests, block logs, the lock of the one writer."""
