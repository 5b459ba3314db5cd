"""Show what a saved replay memory contains, in a browser: ``framestow view``.

A browser reads *resources*, which ``MemoryView`` makes by name: the table of episodes, the steps and frames of one of
them. ``write_page`` puts some of them into one HTML file, and ``ViewServer`` serves all of them from 127.0.0.1.
"""
