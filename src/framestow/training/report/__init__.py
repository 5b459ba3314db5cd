"""The HTML page of ``framestow report``, its charts and its style sheet."""
