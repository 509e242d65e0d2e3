package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// sectioned is a file with a table of sections, the last of which holds their names.
func sectioned(sections uint16, names elf.Section64) []byte {
	h := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Shoff: headerBytes, Ehsize: headerBytes, Phentsize: 56, Shentsize: headerBytes, Shnum: sections, Shstrndx: sections - 1,
	}
	names.Type = uint32(elf.SHT_STRTAB)
	table := make([]elf.Section64, sections)
	table[sections-1] = names
	var b bytes.Buffer
	for _, part := range []any{h, table} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

// Files that make debug/elf load gigabytes are refused before it sees them.
func TestHeadersThatAreRefused(t *testing.T) {
	set := func(b []byte, at int, v uint16) []byte {
		binary.LittleEndian.PutUint16(b[at:], v)
		return b
	}
	small := elf.Section64{Off: headerBytes, Size: 64}
	if _, err := checkHeader(bytes.NewReader(sectioned(40, small))); err != nil {
		t.Fatalf("a small file: %v", err)
	}
	for name, tc := range map[string]struct {
		file []byte
		want string
	}{
		"names of 7 GiB":       {sectioned(2, elf.Section64{Off: headerBytes, Size: 7 << 30}), "names for"},
		"names shared by many": {sectioned(4096, elf.Section64{Off: headerBytes, Size: 1 << 20}), "names for"},
		"compressed names":     {sectioned(2, elf.Section64{Flags: uint64(elf.SHF_COMPRESSED), Off: headerBytes, Size: 64}), "compressed"},
		"many sections":        {sectioned(4097, small), "too many"},
		"number in section 0":  {set(sectioned(2, small), 60, 0), "not a 64-bit"},
		"many segments":        {set(sectioned(2, small), 56, 0xffff), "too many"},
		"wide segments":        {set(set(sectioned(2, small), 54, 0xffff), 56, 2), "too many"},
		"wide sections":        {set(sectioned(2, small), 58, 0xffff), "not a 64-bit"},
		"table cut off":        {sectioned(40, small)[:1000], "sections"},
		"header cut off":       {sectioned(40, small)[:60], "EOF"},
	} {
		if _, err := checkHeader(bytes.NewReader(tc.file)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		if found, err := Find(bytes.NewReader(tc.file), probed(), soon()); err == nil {
			t.Errorf("%s: found %+v", name, found)
		}
	}
}

// A sparse file of 8 GB costs its author nothing, and must cost the reader nothing.
func TestSparseNamesCostNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sparse.so")
	if err := os.WriteFile(path, sectioned(2, elf.Section64{Off: 4096, Size: 7 << 30}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, MaxFileBytes); err != nil {
		t.Skipf("needs a file system with sparse files: %v", err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Find(f, probed(), soon()); err == nil {
		t.Error("it is taken for a library")
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 1<<20 {
		t.Errorf("%d bytes were allocated", after.TotalAlloc-before.TotalAlloc)
	}
}

// The file is rewritten after the check: what was checked is what is parsed.
func TestHeaderIsReadOnce(t *testing.T) {
	file := sectioned(2, elf.Section64{Off: headerBytes, Size: 64})
	h, err := checkHeader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	copy(file, sectioned(2, elf.Section64{Off: headerBytes, Size: 7 << 30}))
	f, err := elf.NewFile(h)
	if err != nil {
		t.Fatal(err)
	}
	if size := f.Sections[1].Size; size != 64 {
		t.Errorf("%d bytes of names, want those of the check", size)
	}
}
