"""Publishes files as turns on the log; bad lines are reported with their place.

Each format has a file with a pure parser; `formats` lists and detects them, `opening` connects them
to the sources, `records` converts their output to turns.
"""
