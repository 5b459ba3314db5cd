"""The benchmark of ``framestow bench``: record a play, fill the memories, time them in turn, and show the figures."""
