// Package nvml reads NVIDIA devices through libnvidia-ml.so.1, in a child process
// of the same binary: a call that hangs is killed, one that ends its process ends
// the child, and both cost readings of that device and nothing else. The parent
// side is [Reader]; the child is [Child]; [Look] asks once, for `trimtab doctor`.
//
// The library is loaded with dlopen at run time and each symbol is looked up
// before its call, since a call to a symbol that the driver lacks ends the process.
// Before it enters a call the child writes the call's name to a page shared with
// the parent, which so can name what hung and ask the next child to leave it out
// for that device. No library, no driver and no device are normal states.
//
// The trap: a driver can neither be unloaded nor a GPU be reset while any process
// has NVML open. Stop trimtab before either.
package nvml
