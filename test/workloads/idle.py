"""A container that holds PyTorch in memory and does nothing.

True class by construction: idle. It prints one note and no steps.
"""

import argparse
import time

import steplog
import torch

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=0.0)
    args = parser.parse_args()
    model = torch.zeros(16 << 20)
    steplog.note(f"idle holds={model.numel() * 4 >> 20}MiB")
    time.sleep(args.seconds if args.seconds > 0 else 1e8)
