"""From files to turns on the log: bad lines are reported with their place, the others published.

One file a format, each a pure parser; `formats` lists and recognises them, `opening` joins
them with the sources, `records` makes turns of what they give.
"""
