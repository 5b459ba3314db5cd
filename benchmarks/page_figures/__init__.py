"""The sentences and tables of the pages that have measured figures, one module for each kind of page."""
