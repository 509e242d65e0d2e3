package torch

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// symbolPrefix is torch::autograd::Engine::execute, whatever its arguments are
// in this version.
const symbolPrefix = "_ZN5torch8autograd6Engine7executeE"

// Bounds on what a container's file can make us read. libtorch_cpu has about
// 20 MiB of dynamic strings and 5 MiB of dynamic symbols.
const (
	maxStringBytes = 256 << 20
	maxSymbolBytes = 128 << 20
	chunkBytes     = 256 << 10
	symbolBytes    = 24 // Elf64_Sym
)

// errNoSymbol: the file is fine and has no autograd engine.
var errNoSymbol = errors.New("no autograd engine")

// findSymbol returns the file offset of the engine's entry. It streams the
// dynamic symbols through a small buffer: they are too many to hold.
func findSymbol(r io.ReaderAt) (offset uint64, err error) {
	// debug/elf is not hardened against hostile files, and this one is a container's.
	defer func() {
		if r := recover(); r != nil {
			offset, err = 0, fmt.Errorf("read ELF: panic: %v", r)
		}
	}()
	f, err := elf.NewFile(r)
	if err != nil {
		return 0, fmt.Errorf("read ELF: %w", err)
	}
	if f.Class != elf.ELFCLASS64 || f.ByteOrder != binary.LittleEndian {
		return 0, errNoSymbol
	}
	strs, syms := f.Section(".dynstr"), f.Section(".dynsym")
	if strs == nil || syms == nil || strs.Type == elf.SHT_NOBITS || syms.Type == elf.SHT_NOBITS {
		return 0, errNoSymbol
	}
	if strs.Size > maxStringBytes || syms.Size > maxSymbolBytes {
		return 0, fmt.Errorf("%d bytes of dynamic strings and %d of symbols are too many", strs.Size, syms.Size)
	}
	names, err := namesWithPrefix(strs, strs.Size)
	if err != nil {
		return 0, fmt.Errorf("read .dynstr: %w", err)
	}
	if len(names) == 0 {
		return 0, errNoSymbol
	}
	addr, err := symbolAddress(syms, syms.Size, names)
	if err != nil {
		return 0, err
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && addr >= p.Vaddr && addr-p.Vaddr < p.Filesz {
			return addr - p.Vaddr + p.Off, nil
		}
	}
	return 0, fmt.Errorf("symbol address %#x lies in no executable segment", addr)
}

// namesWithPrefix returns the string-table offsets of names that begin with symbolPrefix.
func namesWithPrefix(r io.ReaderAt, size uint64) (map[uint32]bool, error) {
	names := map[uint32]bool{}
	needle := []byte("\x00" + symbolPrefix)
	buf := make([]byte, chunkBytes)
	for at := uint64(0); at < size; at += uint64(len(buf) - len(needle)) {
		n, err := r.ReadAt(buf[:min(uint64(len(buf)), size-at)], int64(at))
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		for from := 0; ; {
			i := bytes.Index(buf[from:n], needle)
			if i < 0 {
				break
			}
			names[uint32(at)+uint32(from+i)+1] = true
			from += i + 1
		}
		if n < len(buf) {
			break
		}
	}
	return names, nil
}

// symbolAddress returns the value of the first defined function with one of the names.
func symbolAddress(r io.ReaderAt, size uint64, names map[uint32]bool) (uint64, error) {
	buf := make([]byte, chunkBytes/symbolBytes*symbolBytes)
	for at := uint64(0); at < size; at += uint64(len(buf)) {
		n, err := r.ReadAt(buf[:min(uint64(len(buf)), size-at)], int64(at))
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("read .dynsym: %w", err)
		}
		for s := buf[:n]; len(s) >= symbolBytes; s = s[symbolBytes:] {
			defined := binary.LittleEndian.Uint16(s[6:]) != uint16(elf.SHN_UNDEF)
			function := elf.ST_TYPE(s[4]) == elf.STT_FUNC
			if defined && function && names[binary.LittleEndian.Uint32(s)] {
				return binary.LittleEndian.Uint64(s[8:]), nil
			}
		}
		if n < len(buf) {
			break
		}
	}
	return 0, errNoSymbol
}
