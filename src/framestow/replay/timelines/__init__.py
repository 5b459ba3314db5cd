"""Where each transition lies, who leaves when others come, and which may be drawn."""
