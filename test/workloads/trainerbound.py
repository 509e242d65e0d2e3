"""A trainer that is slow itself: the model costs more CPU than the loaders' work.

True class by construction: compute/host, with or without a quota; no data
wait. --device-ms 30 makes it the trainer between launches of an idle device.
"""

import sys

import dataloader

if __name__ == "__main__":
    defaults = ["--image-size", "128", "--batch", "16", "--model-passes", "5", "--device-ms", "0"]
    sys.argv[1:1] = defaults
    dataloader.main()
