"""Image and audio files in folders, tables, lists and tar shards."""
