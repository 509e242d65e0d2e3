"""Too few loaders: one decodes all the time while a core stays free.

True class by construction: input/workers without a quota: the only loader is on
a CPU all the time, and w / W = w is longer than the trainer's own time. With
C_t + D about 25 ms and w about 100 ms, four or five loaders would do, given
cores for them.
"""

import sys

import dataloader

if __name__ == "__main__":
    sys.argv[1:1] = ["--workers", "1", "--batch", "40", "--device-ms", "5", "--width", "12"]
    dataloader.main()
