package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/link"
)

// attached is what the kernel says is probed in one file: the uprobes' own word,
// not that of the code that attached them.
type attached struct {
	file      string
	functions []string // sorted; an offset that no symbol names is shown as a number
	here      int      // functions of CUDA's or NCCL's names that the file exports
}

// attachedNow asks the kernel for all uprobes that this process could have made, by
// file. Before Linux 6.10 trimtab attaches by perf events, which the kernel does not
// list; then the answer is empty.
// initPID is the init process of the container that holds the files.
func attachedNow(initPID int) (out []attached, err error) {
	at := map[string]map[uint64]bool{}
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err != nil {
			continue // of a kind that this kernel does not describe
		}
		multi := info.UprobeMulti()
		if multi == nil {
			continue
		}
		offsets, ok := multi.Offsets()
		if !ok {
			continue
		}
		file := multi.File
		if at[file] == nil {
			at[file] = map[uint64]bool{}
		}
		for _, o := range offsets {
			at[file][o.Offset] = true
		}
	}
	for _, file := range slices.Sorted(maps.Keys(at)) {
		a := attached{file: file}
		names, here := exported(filepath.Join("/proc", strconv.Itoa(initPID), "root", file))
		a.here = here
		for o := range at[file] {
			a.functions = append(a.functions, nameOf(names, o))
		}
		slices.Sort(a.functions)
		a.functions = slices.Compact(a.functions)
		out = append(out, a)
	}
	return out, it.Err()
}

// nameOf allows for the ENDBR64 that the probe steps over: 4 bytes.
func nameOf(names map[uint64]string, offset uint64) string {
	for _, skip := range []uint64{0, 4} {
		if name, ok := names[offset-skip]; ok {
			return name
		}
	}
	return fmt.Sprintf("%#x", offset)
}

// exported maps file offsets to the names of CUDA's and NCCL's functions in a file of
// a container. The check made that container and its files: they are not hostile.
func exported(file string) (names map[uint64]string, here int) {
	names = map[uint64]string{}
	f, err := elf.Open(file)
	if err != nil {
		return names, 0
	}
	defer f.Close()
	dynamic, errDynamic := f.DynamicSymbols()
	if errDynamic != nil && !errors.Is(errDynamic, elf.ErrNoSymbols) {
		return names, 0
	}
	static, _ := f.Symbols() // most libraries are stripped
	for _, s := range append(dynamic, static...) {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == elf.SHN_UNDEF {
			continue
		}
		if !slices.ContainsFunc([]string{"cu", "nccl", "_ZN5torch8autograd6Engine7execute"}, func(p string) bool { return strings.HasPrefix(s.Name, p) }) {
			continue
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && s.Value >= p.Vaddr && s.Value < p.Vaddr+p.Filesz {
				names[s.Value-p.Vaddr+p.Off] = s.Name
				here++
			}
		}
	}
	return names, here
}

// symbols says what was found and attached in the job's libraries.
func (c *check) symbols(d *daemon, j *job) {
	all, err := attachedNow(j.c.InitPID)
	if err != nil {
		c.report.row(note, "symbols", "uprobes, as the kernel lists them", "", "not listed here: "+err.Error())
		return
	}
	launch := false
	for _, a := range all {
		if a.here == 0 {
			continue
		}
		launch = launch || slices.ContainsFunc(a.functions, func(f string) bool { return strings.Contains(f, "LaunchKernel") })
		c.report.row(note, "symbols", filepath.Base(a.file), fmt.Sprintf("the kernel lists %d of its %d functions", len(a.functions), a.here), "")
		c.report.say("         %s: %s", a.file, strings.Join(a.functions, " "))
	}
	sample := d.tap.sample()
	counted := sample.CUDA != nil && len(sample.CUDA.Processes) > 0
	words := "the job's process is not counted"
	if counted {
		p := sample.CUDA.Processes[0]
		words = fmt.Sprintf("%d launches, %d graphs, %d threads that wait", p.Launches, p.Graphs, len(p.Threads))
		if len(sample.CUDA.Missing) > 0 {
			words += "; missing: " + strings.Join(sample.CUDA.Missing, "; ")
		}
	}
	witness := "no listed uprobe is on a launch"
	if launch {
		witness = "a launch function is probed"
	} else if len(all) == 0 {
		witness = "this kernel lists none (perf events)"
	}
	c.report.judge(counted && (launch || len(all) == 0), "symbols", "launches are probed and counted", witness, words)
}
