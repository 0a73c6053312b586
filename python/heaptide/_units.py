"""Sizes as text."""


def format_size(size: float) -> str:
    """Formats a size with a unit and three significant digits."""
    if abs(size) < 1024:
        return "{:.0f} B".format(size)
    for unit in "KMGT":
        size /= 1024
        if abs(size) < 1024 or unit == "T":
            break
    digits = 2 if abs(size) < 10 else 1 if abs(size) < 100 else 0
    return "{:.{}f} {}iB".format(size, digits, unit)
