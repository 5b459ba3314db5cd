"""How long a test waits for an event: only a hang takes longer, however busy the machine is."""

PATIENCE_S = 60.0
