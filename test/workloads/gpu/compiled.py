"""Becomes the program named first, as run.py does, beside the pool that torch.compile keeps:
a side process and the workers that it forks. Each compiles once, half a second of CPU, and
is there until the trainer ends: its watchdog looks for that each second, as PyTorch's does.
    compiled.py WORKERS PROGRAM [ARGS]
"""

import os
import subprocess
import sys
import threading
import time


def compile_kernels():
    end = time.thread_time() + 0.5
    while time.thread_time() < end:
        sum(i * i for i in range(1000))


def watch(parent):
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)


def worker(parent, jobs):
    threading.Thread(target=watch, args=(parent,), daemon=True).start()
    for _ in iter(lambda: os.read(jobs, 1), b""):
        compile_kernels()


def side_process(workers):
    parent, pipes = os.getpid(), []
    for _ in range(workers):
        jobs, hand = os.pipe()
        if os.fork() == 0:
            os.close(hand)
            for other in pipes:
                os.close(other)
            worker(parent, jobs)
            os._exit(0)
        os.close(jobs)
        os.write(hand, b"1")
        pipes.append(hand)
    sys.stdin.buffer.read()  # nothing more to compile, until the trainer ends


def main():
    if sys.argv[1] == "--side":
        side_process(int(sys.argv[2]))
        return
    side = subprocess.Popen([sys.executable, __file__, "--side", sys.argv[1]], stdin=subprocess.PIPE)
    os.set_inheritable(side.stdin.fileno(), True)  # it ends with the program that this becomes
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
