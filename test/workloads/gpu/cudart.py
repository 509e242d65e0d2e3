"""The part of CUDA's runtime that the Python trainers use, by ctypes on the
ordinary name, libcudart.so.12. CUDA has no code to run here: the virtual device
takes a kernel's first argument as its time in nanoseconds.
"""

import ctypes
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # steplog, dataloader

TO_DEVICE, TO_HOST = 1, 2
SPIN, BLOCKING = 1, 4  # cudaDeviceSchedule*
EVENT_BLOCKING = 1 | 2  # cudaEventBlockingSync | cudaEventDisableTiming
SYNCS = ("stream", "device", "event", "blocking", "spin")


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


def load():
    lib = ctypes.CDLL(os.environ.get("CUDART", "libcudart.so.12"))
    lib.cudaGetErrorString.restype = ctypes.c_char_p
    lib.cudaLaunchKernel.argtypes = [ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    lib.cudaMalloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    lib.cudaHostAlloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
    copy = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    lib.cudaMemcpy.argtypes, lib.cudaMemcpyAsync.argtypes = copy, copy + [ctypes.c_void_p]
    for name in ("cudaStreamSynchronize", "cudaEventSynchronize"):
        getattr(lib, name).argtypes = [ctypes.c_void_p]
    lib.cudaEventRecord.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return lib


class Device:
    """One device and one stream; kernels of kernel_us each."""

    def __init__(self, ordinal=0, kernel_us=1000.0, sync="stream"):
        self.lib, self.sync = load(), sync
        self.check(self.lib.cudaSetDevice(ordinal))
        if sync in ("spin", "blocking"):
            self.check(self.lib.cudaSetDeviceFlags(SPIN if sync == "spin" else BLOCKING))
        self.stream, self.event = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.lib.cudaStreamCreateWithFlags(ctypes.byref(self.stream), 1))
        self.check(self.lib.cudaEventCreateWithFlags(ctypes.byref(self.event), EVENT_BLOCKING))
        self.ns = ctypes.c_uint64(int(kernel_us * 1000))
        self.args = (ctypes.c_void_p * 1)(ctypes.addressof(self.ns))
        self.code = ctypes.create_string_buffer(16)  # stands for the kernel's code
        self.grid, self.block = Dim3(1024, 1, 1), Dim3(256, 1, 1)

    def check(self, error):
        if error:
            raise RuntimeError(f"CUDA error {error}: {self.lib.cudaGetErrorString(error).decode()}")

    def launch(self, kernels):
        lib, code = self.lib, ctypes.addressof(self.code)
        for _ in range(kernels):
            self.check(lib.cudaLaunchKernel(code, self.grid, self.block, self.args, 0, self.stream))

    def malloc(self, size):
        pointer = ctypes.c_void_p()
        self.check(self.lib.cudaMalloc(ctypes.byref(pointer), size))
        return pointer

    def pinned(self, size):
        pointer = ctypes.c_void_p()
        self.check(self.lib.cudaHostAlloc(ctypes.byref(pointer), size, 0))
        return pointer

    def copy(self, to, source, size, kind):
        """Waits for the copy, as without pinned memory."""
        self.check(self.lib.cudaMemcpy(to, source, size, kind))

    def copy_async(self, to, source, size, kind):
        self.check(self.lib.cudaMemcpyAsync(to, source, size, kind, self.stream))

    def wait(self):
        if self.sync == "device":
            self.check(self.lib.cudaDeviceSynchronize())
        elif self.sync == "event":
            self.check(self.lib.cudaEventRecord(self.event, self.stream))
            self.check(self.lib.cudaEventSynchronize(self.event))
        else:
            self.check(self.lib.cudaStreamSynchronize(self.stream))


class Feed:
    """Copies batches to the device: --h2d-mib beside the batch's own bytes."""

    def __init__(self, device, mib, pinned):
        self.device, self.pinned, self.size = device, pinned, int(mib * 2**20)
        self.host = device.pinned(max(self.size, 4))
        self.there = device.malloc(max(self.size, 64 << 20))

    def __call__(self, address, size):
        copy = self.device.copy_async if self.pinned else self.device.copy
        copy(self.there, address, min(size, 64 << 20), TO_DEVICE)
        if self.size:
            copy(self.there, self.host, self.size, TO_DEVICE)


def add_arguments(parser):
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--kernels", type=int, default=20, help="launches per micro-batch")
    parser.add_argument("--kernel-us", type=float, default=1000.0, help="device time of each")
    parser.add_argument("--sync", choices=SYNCS, default="stream", help="how the trainer waits for the device")
    parser.add_argument("--spin", action="store_const", const="spin", dest="sync", help="the same as --sync spin")
    parser.add_argument("--h2d-mib", type=float, default=0.0, help="copied per micro-batch beside the batch itself")
    parser.add_argument("--host-ms", type=float, default=0.0, help="the trainer's own CPU per micro-batch")
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches per step: ticks per step")
