"""A job that gets all it needs and needs little: loaders well ahead of the trainer.

True class by construction: balanced as far as the host can see; its step is
almost all declared device wait, so compute/device once the device is read.
"""

import sys

import dataloader

if __name__ == "__main__":
    sys.argv[1:1] = ["--image-size", "128", "--batch", "8", "--device-ms", "80"]
    dataloader.main()
