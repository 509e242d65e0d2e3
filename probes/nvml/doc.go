// Package nvml reads NVIDIA devices by a child process, trimtab-nvml (cmd/trimtab-nvml), which calls
// libnvidia-ml.so.1: a call that hangs is killed, one that ends its process ends the child, and both
// cost readings of that device and nothing else. The child needs glibc; this package, and so the
// daemon, needs no library. The daemon's side is [Reader]; [Look] asks once, for `trimtab doctor`.
//
// Before it enters a call the child writes the call's name to a page shared with the parent, which
// so can name what hung and ask the next child to leave it out for that device. No child, no library,
// no driver and no device are normal states.
//
// The trap: a driver can neither be unloaded nor a GPU be reset while any process
// has NVML open. Stop trimtab before either.
package nvml
