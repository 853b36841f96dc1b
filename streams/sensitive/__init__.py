"""Secrets and personal numbers in a text: where they lie, of which kind, and the text without
them.

Own patterns by kind of thing, and checksums of python-stdnum; `ops/decisions/` has why. Every
pattern takes time linear in the text: repetitions are bounded or possessive, and a run of
characters is looked at from its beginning only.
"""
