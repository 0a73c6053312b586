"""What a forked child keeps until CPython ends. The copy of what its parent keeps cannot be
written, because a directory is in its place. Prints the id of the parent.

    keep_in_child  5000 of 1035 bytes, kept by the child until the end: 5175000 bytes
    keep           7000 of 1036 bytes, kept by the parent until the end

`bytes(n)` takes n + 33 bytes in every version.
"""
import os
import sys


def keep_in_child():
    kept = [None] * 5000
    for i in range(5000):
        kept[i] = bytes(1002)
    return kept


def keep():
    kept = [None] * 7000
    for i in range(7000):
        kept[i] = bytes(1003)
    return kept


pid = os.fork()
if pid == 0:
    CHILD = keep_in_child()
    sys.exit(7)
status = os.waitpid(pid, 0)[1]
os.mkdir(os.path.join(os.environ["HEAPTIDE_OUTPUT"], f"{os.getpid()}-0.held.new"))
PARENT = keep()
print(os.getpid())
sys.exit(os.WEXITSTATUS(status) + 1)
