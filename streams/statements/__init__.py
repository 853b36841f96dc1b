"""What a plain statement claims, of whom, and which claims cannot both hold. Pure.

`claims` says what a claim is and which two exclude each other; `parsing` takes a statement apart;
`english`, `german` and `japanese` know the words; `places` knows which place lies in which.
"""
