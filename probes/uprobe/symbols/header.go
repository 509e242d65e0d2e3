package symbols

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Bounds on what debug/elf reads before anything is searched. PyTorch's and CUDA's
// libraries have about 40 sections, 10 segments and 500 bytes of section names.
const (
	headerBytes      = 64 // Elf64_Ehdr, and Elf64_Shdr
	maxSections      = 4096
	maxSegmentBytes  = 64 << 10
	maxSectionNames  = 1 << 20
	maxNamesInMemory = 64 << 20 // each section's name is copied, to its end
)

// MaxFileBytes bounds the files that are looked into; libtorch_cuda has 1.5 GiB.
const MaxFileBytes = 8 << 30

var errNotELF = errors.New("read ELF: not a 64-bit little-endian file with sections")

// headed is a file whose header and section table were read once and are served
// from memory: what was checked is what is used, though the file be written to.
type headed struct {
	file      io.ReaderAt
	header    []byte
	table     []byte
	tableFrom int64
}

// ReadAt reads the copies where they hold all that is asked for.
func (h *headed) ReadAt(b []byte, at int64) (int, error) {
	switch end := at + int64(len(b)); {
	case at >= 0 && end <= headerBytes:
		return copy(b, h.header[at:]), nil
	case at >= h.tableFrom && end <= h.tableFrom+int64(len(h.table)):
		return copy(b, h.table[at-h.tableFrom:]), nil
	}
	return h.file.ReadAt(b, at)
}

// CheckHeader refuses what Find would for its header alone.
func CheckHeader(r io.ReaderAt) error {
	_, err := checkHeader(r)
	return err
}

// checkHeader refuses files for which debug/elf would read or hold much: it loads
// the segments and the section names whole, whatever their sizes are said to be.
func checkHeader(r io.ReaderAt) (*headed, error) {
	h := &headed{file: r, header: make([]byte, headerBytes)}
	if _, err := r.ReadAt(h.header, 0); err != nil {
		return nil, fmt.Errorf("read ELF: %w", err)
	}
	if string(h.header[:4]) != elf.ELFMAG || elf.Class(h.header[4]) != elf.ELFCLASS64 || elf.Data(h.header[5]) != elf.ELFDATA2LSB {
		return nil, errNotELF
	}
	field := func(at int) uint64 { return uint64(binary.LittleEndian.Uint16(h.header[at:])) }
	segments, sections, names := field(54)*field(56), field(60), field(62)
	from := binary.LittleEndian.Uint64(h.header[40:])
	if field(58) != headerBytes || sections == 0 || names >= sections || from > MaxFileBytes {
		return nil, errNotELF // sections 0: their number stands in the first one, and may be anything
	}
	if segments > maxSegmentBytes || sections > maxSections {
		return nil, fmt.Errorf("read ELF: %d sections and %d bytes of segments are too many", sections, segments)
	}
	h.tableFrom, h.table = int64(from), make([]byte, sections*headerBytes)
	if _, err := r.ReadAt(h.table, h.tableFrom); err != nil {
		return nil, fmt.Errorf("read ELF: sections: %w", err)
	}
	return h, checkNames(h.table[names*headerBytes:], sections)
}

// checkNames bounds the table of section names, by its section's header.
func checkNames(header []byte, sections uint64) error {
	flags, size := binary.LittleEndian.Uint64(header[8:]), binary.LittleEndian.Uint64(header[32:])
	if elf.SectionFlag(flags)&elf.SHF_COMPRESSED != 0 {
		return errors.New("read ELF: the section names are compressed")
	}
	if size > maxSectionNames || size*sections > maxNamesInMemory {
		return fmt.Errorf("read ELF: %d bytes of names for %d sections are too many", size, sections)
	}
	return nil
}
