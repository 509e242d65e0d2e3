"""Samples over HTTP from another container.

--serve answers each request after --server-ms with --sample-kib bytes. Without
it: a DataLoader (or, with --workers 0, the trainer itself) that fetches each
sample from http://HOST:8000/. True class by construction: input/remote, for the
server's delay, or the shaping of its link, is longer than everything else.
"""

import argparse
import http.client
import http.server
import time

import steplog
from torch.utils.data import Dataset

import feed


def serve(args):
    payload = bytes(i * 31 % 251 for i in range(args.sample_kib << 10))

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            time.sleep(args.server_ms / 1000)
            self.send_response(200)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *_):
            pass

    http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()


class Fetched(Dataset):
    def __init__(self, host):
        self.host, self.link = host, None

    def __len__(self):
        return 1 << 40

    def connect(self):
        for _ in range(100):  # the server's container may still be importing
            try:
                link = http.client.HTTPConnection(self.host, 8000)
                link.connect()
                return link
            except OSError:
                time.sleep(0.2)
        raise ConnectionError(f"no server at {self.host}:8000")

    def __getitem__(self, index):
        if self.link is None:  # made in the loader: a connection cannot be shared
            self.link = self.connect()
        self.link.request("GET", f"/{index}")
        return self.link.getresponse().read()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    feed.add_arguments(parser, batch=4, device_ms=10)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--host", default="server")
    parser.add_argument("--server-ms", type=float, default=20.0)
    parser.add_argument("--sample-kib", type=int, default=128)
    args = parser.parse_args()
    if args.serve:
        serve(args)
    steplog.note(f"fetch host={args.host} workers={args.workers}")
    feed.train(Fetched(args.host), args)


if __name__ == "__main__":
    main()
