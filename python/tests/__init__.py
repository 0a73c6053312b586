"""Tests of the package: `python3 -m unittest discover python`, with the recorder and without."""
