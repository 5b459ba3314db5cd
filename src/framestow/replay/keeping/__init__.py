"""Who leaves a memory, and when: by capacity, by bytes, by damage."""
