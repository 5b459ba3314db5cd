"""Where frames live, addressed by (stream, position). Knows no episode and no reward."""
