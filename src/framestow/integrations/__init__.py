"""Drop-in buffers and wrappers for other libraries: one module or package per library."""
