"""Tests of the package: `python3 -m unittest discover python`, with and without the recorder."""
