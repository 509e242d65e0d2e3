// Package uprobe finds libraries in the processes of watched containers and
// probes functions in them. The probes on frameworks, CUDA and NCCL share one
// Finder: processes are looked at once for all of them.
//
// What it looks into is hostile. Files are reached by /proc/PID/map_files, or,
// where the capability for that is missing, by the path in /proc/PID/maps inside
// the process's root, and then only if the inode is the mapped one; opened with
// O_PATH first; regular files of a bearable size only; a library's name or path
// decides what is read first, never what is believed. Another process reads it
// (package symbols). Files on FUSE and on network mounts are left out, for reading
// there may wait for ever, and so are those on mounts that neither the process nor the
// host shows. A header is checked before debug/elf sees the file, and a process has
// bounds on libraries, names and time.
//
// A layer of an overlay that lies on such a mount is not told apart. So the goroutine
// that uses a Finder touches no file of a container: a container's looks and attachments
// run in one goroutine of its own (work.go), one after the other. A file that does not
// answer costs its own container. What the kernel reads to attach is read before, in
// that goroutine: the kernel holds a lock there that every fork of the host wants.
//
// Attachments are by process, not by file. An attachment for a file stops every
// process that maps it, watched or not, and a driver's library is one file for all
// containers; the kernel's process filter takes the breakpoint out of the others
// (measured on 6.18: 1 ns a call for them, instead of the full price). The filter
// goes by address space, so all threads are seen and a forked child is not, until
// it is found as a process of its own. The price: attachments of other processes
// to the same function cost a hit 30 ns each. So copies forked from a process that
// has used CUDA, which are data loaders, are left alone.
//
// Linux 6.10 and newer attach many functions at once by a BPF link, with CAP_BPF
// and CAP_PERFMON; older ones by perf events, which want CAP_SYS_ADMIN. (6.6 has
// such links as well, but filters by thread.) Other processes' maps and files
// want CAP_SYS_PTRACE besides.
//
// The trap: a hit's price depends on the instruction that the breakpoint
// displaces. The kernel emulates push, call, jmp and nop; anything else it
// single-steps, at up to 20 times the price on virtual machines. So ENDBR64 is
// stepped over, and hits of both sorts are counted apart.
package uprobe
