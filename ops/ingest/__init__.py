"""From files to turns on the log: what is bad is told with its place, and the rest goes on.

One file a format, each a pure reader; `formats` knows them and recognises them, `reading` joins
them with the sources, `records` makes turns of what they give.
"""
