"""Runs COUNT new lines of Python functions, three times over. After each third it prints how large
the profile has grown and how much memory is resident. What the recorder keeps is flat after the
first third. `benches/soak.py` runs it as `churn_lines.py COUNT`.
"""
import os
import sys


def profile_bytes():
    """Returns the end of the profile's extents, which its header has at byte 64; 0 without one."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = [line[line.index("/"):].rstrip() for line in maps if line.endswith(".profile\n")]
    if not paths:
        return 0
    with open(paths[0], "rb") as profile:
        profile.seek(64)
        return int.from_bytes(profile.read(8), "little")


def resident_bytes():
    """Returns the resident memory of the process."""
    with open("/proc/self/statm", encoding="utf-8") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def work(number):
    """Allocates a block in a function on a line of its own."""
    code = compile("\n" * (number % 50) + "bytes(1000)", f"file {number // 50}", "exec")
    exec(code)  # pylint: disable=exec-used


def main():
    """Prints the sizes after each third."""
    count = int(sys.argv[1])
    for third in range(3):
        for number in range(third * count, third * count + count):
            work(number)
        print(profile_bytes(), resident_bytes(), flush=True)


if __name__ == "__main__":
    main()
