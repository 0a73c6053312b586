"""Clients of an HTTP server that are idle or slow. Arguments: address, a path with a large response,
number of clients.

Connects all of them, sends the beginnings of their requests and prints "connected". Then each sends
or reads a byte now and then. At the end of standard input, it prints how many connections the
server has not closed.
"""

import resource
import select
import socket
import sys

ADDRESS, PATH, COUNT = sys.argv[1], sys.argv[2], int(sys.argv[3])
HOST, PORT = ADDRESS.rsplit(":", 1)

# Each kind: what it sends first, what it sends repeatedly.
KINDS = [
    (b"", b""),
    (f"GET {PATH} HTTP/1.1\r\nHost: {ADDRESS}\r\nX: ".encode(), b"x"),
    (f"POST {PATH} HTTP/1.1\r\nHost: {ADDRESS}\r\nContent-Length: 9999\r\n\r\n".encode(), b"x"),
    (f"GET /healthz HTTP/1.1\r\nHost: {ADDRESS}\r\n\r\n".encode(), b""),
    (f"GET {PATH} HTTP/1.1\r\nHost: {ADDRESS}\r\n\r\n".encode(), b""),
]


def connected(number):
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.connect((HOST, int(PORT)))
    client.setblocking(False)
    first, _ = KINDS[number % len(KINDS)]
    client.send(first)
    return client


def drip(number, client):
    _, more = KINDS[number % len(KINDS)]
    try:
        if more:
            client.send(more)
        elif number % 2:
            client.recv(1)
    except OSError:
        pass  # nothing to read, or closed


def is_open(client):
    try:
        while client.recv(1 << 20):
            pass
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(COUNT + 100, hard), hard))
clients = [connected(number) for number in range(COUNT)]
print("connected", flush=True)
while not select.select([sys.stdin], [], [], 0.1)[0]:
    for number, client in enumerate(clients):
        drip(number, client)
print(sum(map(is_open, clients)), flush=True)
