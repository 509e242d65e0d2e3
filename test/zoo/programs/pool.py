"""A pool of Python's multiprocessing whose workers are spawned, unless told another way; a step is a result."""

import multiprocessing
import sys

import zoolog


def primes(n):
    return sum(all(i % j for j in range(2, int(i**0.5) + 1)) for i in range(2, n))


if __name__ == "__main__":
    log = zoolog.Log()
    with multiprocessing.get_context(sys.argv[1] if sys.argv[1:] else "spawn").Pool(2) as pool:
        while True:
            for _ in pool.imap_unordered(primes, [8000] * 40):
                log.step()
