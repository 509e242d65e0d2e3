"""Loaders that read their samples over TCP from a slow server.

True class by construction: input/remote. The server is a process of the same
container, on loopback; it sleeps --server-ms before each answer, so neither it
nor the loaders use CPU to speak of. Each loader has one connection.
"""

import argparse
import multiprocessing
import socket
import threading
import time

import steplog
from torch.utils.data import Dataset

import feed


def answer(link, delay, payload):
    with link:
        while link.recv(1):
            time.sleep(delay)
            link.sendall(payload)


def serve(server, delay, size):
    payload = bytes(i * 31 % 251 for i in range(size))
    while True:
        link, _ = server.accept()
        threading.Thread(target=answer, args=(link, delay, payload), daemon=True).start()


class Remote(Dataset):
    def __init__(self, port, size):
        self.port, self.size, self.link = port, size, None

    def __len__(self):
        return 1 << 40

    def __getitem__(self, index):
        if self.link is None:  # made in the loader: a connection cannot be shared
            self.link = socket.create_connection(("127.0.0.1", self.port))
        self.link.sendall(b"?")
        parts, missing = [], self.size
        while missing:
            part = self.link.recv(missing)
            if not part:
                raise ConnectionError("the data server is gone")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    feed.add_arguments(parser, batch=8, device_ms=10)
    parser.add_argument("--server-ms", type=float, default=20.0, help="the server's delay per sample")
    parser.add_argument("--sample-kib", type=int, default=64)
    args = parser.parse_args()
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    size = args.sample_kib << 10
    multiprocessing.Process(target=serve, args=(server, args.server_ms / 1000, size), daemon=True).start()
    port = server.getsockname()[1]
    server.close()
    steplog.note(f"sockets server_ms={args.server_ms:g} kib={args.sample_kib}")
    feed.train(Remote(port, size), args)


if __name__ == "__main__":
    main()
