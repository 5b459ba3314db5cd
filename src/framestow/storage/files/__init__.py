"""Files that outlive the process: what touches the disk, manifests, logs of blocks, the lock of the one writer."""
