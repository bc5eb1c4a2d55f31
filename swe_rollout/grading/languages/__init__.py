"""Tests in other languages than Python: what can be taken out of them, by their syntax trees.

`table` has a language as a row of data, `syntax` reads test files, and the other files are the
recorders that stand in blind test files.
"""
