// Package symbols finds functions by name in ELF files of containers, which are
// hostile: what is read is bounded in size and in time, and the daemon has it read
// by a process that may do nothing else (see [Reader]).
package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Bounds on what a container's file can make us read. libtorch_cpu has about
// 20 MiB of dynamic strings and 5 MiB of dynamic symbols.
const (
	maxStringBytes = 96 << 20
	maxSymbolBytes = 64 << 20
	chunkBytes     = 256 << 10
	symbolBytes    = 24 // Elf64_Sym
	maxNameBytes   = 256
	maxSymbols     = 512 // of a table, wanted
)

// What [Find] says when there is no answer.
var (
	ErrNone      = errors.New("no function of interest")
	ErrOutOfTime = errors.New("out of time")
)

// Symbol is a function found in a file.
type Symbol struct {
	Name   string `json:"name"`
	Offset uint64 `json:"offset,omitempty"` // in the file, of the instruction to probe; of a mark, 0
	// Stepped: the kernel single-steps the instruction there instead of emulating it.
	Stepped bool `json:"stepped,omitempty"`
}

// Want says what is looked for.
type Want struct {
	Names []string `json:"names"` // of functions; one that ends in * stands for all that begin so
	// Marks are names that are only noted, of functions or data.
	Marks []string `json:"marks,omitempty"`
}

// Find returns the wanted functions that a file defines, sorted by name. It streams the
// tables through a small buffer: they are too many to hold. The tables are the dynamic
// one and, for what is linked statically, the full one where it was not stripped. After
// until it gives up with [ErrOutOfTime].
func Find(r io.ReaderAt, want Want, until time.Time) (found []Symbol, err error) {
	// debug/elf is not hardened against hostile files, and this one is a container's.
	defer func() {
		if r := recover(); r != nil {
			found, err = nil, fmt.Errorf("read ELF: panic: %v", r)
		}
	}()
	h, err := checkHeader(r)
	if err != nil {
		return nil, err
	}
	f, err := elf.NewFile(h)
	if err != nil {
		return nil, fmt.Errorf("read ELF: %w", err)
	}
	s := newSearch(want, until)
	for _, tables := range [][2]string{{".dynstr", ".dynsym"}, {".strtab", ".symtab"}} {
		if err := s.table(f, tables[0], tables[1]); err != nil {
			return nil, err
		}
	}
	for name, address := range s.addresses {
		if time.Now().After(until) { // each is somewhere else in the file
			return nil, ErrOutOfTime
		}
		if slices.Contains(want.Marks, name) {
			found = append(found, Symbol{Name: name})
			continue
		}
		if at, ok := locate(f, r, name, address); ok {
			found = append(found, at)
		}
	}
	if len(found) == 0 {
		return nil, ErrNone
	}
	slices.SortFunc(found, func(a, b Symbol) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// search is the search of one file.
type search struct {
	Want
	until     time.Time
	tails     map[[2]byte][][]byte // whole names, by their last two bytes
	begins    [][]byte
	addresses map[string]uint64
}

func newSearch(want Want, until time.Time) *search {
	s := &search{Want: want, until: until, tails: map[[2]byte][][]byte{}, addresses: map[string]uint64{}}
	for _, name := range slices.Concat(want.Names, want.Marks) {
		if begin, open := strings.CutSuffix(name, "*"); open {
			s.begins = append(s.begins, []byte(begin))
		} else if n := len(name); n >= 2 {
			key := [2]byte{name[n-2], name[n-1]}
			s.tails[key] = append(s.tails[key], []byte(name))
		}
	}
	return s
}

func (s *search) table(f *elf.File, strings, symbols string) error {
	strs, syms := f.Section(strings), f.Section(symbols)
	if strs == nil || syms == nil || strs.Type == elf.SHT_NOBITS || syms.Type == elf.SHT_NOBITS {
		return nil
	}
	if strs.Size > maxStringBytes || syms.Size > maxSymbolBytes {
		return fmt.Errorf("%d bytes of names and %d of symbols are too many", strs.Size, syms.Size)
	}
	names, err := s.namesIn(strs, strs.Size)
	if err != nil {
		return fmt.Errorf("read %s: %w", strings, err)
	}
	if len(names) == 0 {
		return nil
	}
	if err := s.addressesIn(syms, syms.Size, names); err != nil {
		return fmt.Errorf("read %s: %w", symbols, err)
	}
	return nil
}

// namesIn returns the wanted names by their offset in a string table.
func (s *search) namesIn(r io.ReaderAt, size uint64) (map[uint32]string, error) {
	names := map[uint32]string{}
	buf := make([]byte, chunkBytes)
	for at := uint64(0); at < size && len(names) < maxSymbols; at += uint64(len(buf) - maxNameBytes) {
		n, err := r.ReadAt(buf[:min(uint64(len(buf)), size-at)], int64(at))
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if time.Now().After(s.until) {
			return nil, ErrOutOfTime
		}
		s.namesInChunk(buf[:n], func(offset int, name []byte) {
			if len(names) < maxSymbols {
				names[uint32(at)+uint32(offset)] = string(name)
			}
		})
		if n < len(buf) {
			break
		}
	}
	return names, nil
}

// namesInChunk passes over all strings once: tables of 20 MiB hold 300,000. A name may be the end of
// a longer string, which linkers keep once for both: ncclSend is that of pncclSend, and
// cudaLaunchKernel of __cudaLaunchKernel.
func (s *search) namesInChunk(chunk []byte, add func(offset int, name []byte)) {
	for start := 0; ; {
		length := bytes.IndexByte(chunk[start:], 0)
		if length < 0 {
			return // it is whole in the next chunk
		}
		end := start + length
		if length >= 2 {
			for _, name := range s.tails[[2]byte(chunk[end-2:end])] {
				if bytes.HasSuffix(chunk[start:end], name) {
					add(end-len(name), name)
				}
			}
		}
		for _, begin := range s.begins {
			if length < maxNameBytes && bytes.HasPrefix(chunk[start:end], begin) {
				add(start, chunk[start:end])
			}
		}
		start = end + 1
	}
}

// addressesIn adds the values of defined functions that bear one of the names.
func (s *search) addressesIn(r io.ReaderAt, size uint64, names map[uint32]string) error {
	buf := make([]byte, chunkBytes/symbolBytes*symbolBytes)
	for at := uint64(0); at < size; at += uint64(len(buf)) {
		n, err := r.ReadAt(buf[:min(uint64(len(buf)), size-at)], int64(at))
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if time.Now().After(s.until) {
			return ErrOutOfTime
		}
		for b := buf[:n]; len(b) >= symbolBytes; b = b[symbolBytes:] {
			name, ok := names[binary.LittleEndian.Uint32(b)]
			if !ok || binary.LittleEndian.Uint16(b[6:]) == uint16(elf.SHN_UNDEF) {
				continue
			}
			if elf.ST_TYPE(b[4]) != elf.STT_FUNC && !slices.Contains(s.Marks, name) {
				continue
			}
			if _, twice := s.addresses[name]; !twice {
				s.addresses[name] = binary.LittleEndian.Uint64(b[8:])
			}
		}
		if n < len(buf) {
			return nil
		}
	}
	return nil
}

// locate turns an address into a place in the file.
func locate(f *elf.File, r io.ReaderAt, name string, address uint64) (Symbol, bool) {
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || p.Flags&elf.PF_X == 0 || address < p.Vaddr || address-p.Vaddr >= p.Filesz {
			continue
		}
		offset := address - p.Vaddr + p.Off
		code := make([]byte, 16)
		n, err := r.ReadAt(code, int64(offset))
		if n == 0 || (err != nil && !errors.Is(err, io.EOF)) {
			return Symbol{}, false
		}
		skip, stepped := instruction(f.Machine, code[:n])
		if skip >= uint64(n) {
			return Symbol{}, false // the file ends before the instruction
		}
		return Symbol{Name: name, Offset: offset + skip, Stepped: stepped}, true
	}
	return Symbol{}, false
}

// instruction says how many bytes of an entry to pass over, and whether the
// instruction there is single-stepped. Passing over ENDBR64 changes nothing that a
// probe reads; anything further would.
func instruction(machine elf.Machine, code []byte) (skip uint64, stepped bool) {
	switch machine {
	case elf.EM_X86_64:
		if bytes.HasPrefix(code, []byte{0xf3, 0x0f, 0x1e, 0xfa}) {
			skip, code = 4, code[4:]
		}
		return skip, !emulatedX86(code)
	case elf.EM_AARCH64:
		// Hints (nop, bti, paciasp) are emulated as no-ops: arch/arm64/kernel/probes/decode-insn.c.
		hint := len(code) >= 4 && binary.LittleEndian.Uint32(code)&0xfffff01f == 0xd503201f
		return 0, !hint
	}
	return 0, true
}

// emulatedX86: push of a register, nop, near call and jump; see branch_setup_xol_ops
// and push_setup_xol_ops in arch/x86/kernel/uprobes.c.
func emulatedX86(code []byte) bool {
	if len(code) < 2 {
		return false
	}
	if code[0] == 0x41 { // push %r8 and up
		return code[1]&0xf8 == 0x50
	}
	return code[0]&0xf8 == 0x50 || code[0] == 0x90 || code[0] == 0xe8 || code[0] == 0xe9 || code[0] == 0xeb
}
