// Package kernel reads, by eBPF, where the wall time of each thread of the
// watched containers goes, and who ended its waits. The programs are in bpf/;
// they aggregate in the kernel, and a reading is one pass of a task iterator.
//
// It infers nothing: roles, windows and causes are made elsewhere from its
// counters. It pins nothing, so all it holds in the kernel goes with the process.
//
// The trap: counters of one thread are consistent among themselves and sum to
// AtNs-SinceNs, but each thread is read at its own AtNs.
package kernel
