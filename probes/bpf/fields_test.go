package bpf_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// recordEnv names a kernel's BTF, raw or in an ELF file: the sizes of the fields that the programs
// read there are written to testdata/fields, in a file of that name.
const recordEnv = "TRIMTAB_RECORD_FIELDS"

// What a relocation asks for, as <bpf/bpf_core_read.h> numbers it.
const (
	byteOffset = 0
	byteSize   = 1
)

// read is a field as a program reads it: its bytes, or any where it asks the kernel for the size.
type read struct {
	program string
	bytes   int
	sized   bool
}

// TestFieldsHaveTheirSize: each field of a kernel's struct is read in the size that it has, on each
// kernel of testdata/fields. The verifier refuses a load that goes beyond a field, and a copy that
// does holds its neighbour's bytes: on_cpu, an int for long, is a byte in 7.2.
func TestFieldsHaveTheirSize(t *testing.T) {
	reads := readFields(t)
	if len(reads) < 40 {
		t.Fatalf("%d fields are read: the relocations were not understood", len(reads))
	}
	if path := os.Getenv(recordEnv); path != "" {
		record(t, path, reads)
	}
	kernels, err := filepath.Glob("testdata/fields/*")
	if err != nil || len(kernels) < 3 {
		t.Fatal(kernels, err)
	}
	for _, kernel := range kernels {
		text, err := os.ReadFile(kernel)
		if err != nil {
			t.Fatal(err)
		}
		compared := 0
		for line := range strings.Lines(string(text)) {
			var field string
			var bytes int
			if _, err := fmt.Sscanf(line, "%s %d", &field, &bytes); err != nil {
				t.Fatalf("%s: %q: %v", kernel, line, err)
			}
			for _, r := range reads[field] {
				if compared++; !r.sized && r.bytes != bytes {
					t.Errorf("%s: %s reads %d bytes of %s, which has %d", filepath.Base(kernel), r.program, r.bytes, field, bytes)
				}
			}
		}
		if compared < 100 {
			t.Errorf("%s: %d reads were compared", kernel, compared)
		}
	}
}

// readFields are the fields that all programs read, by struct and path.
func readFields(t *testing.T) map[string][]read {
	t.Helper()
	objects, err := filepath.Glob("../*/*_bpfel.o")
	if err != nil || len(objects) < 7 {
		t.Fatal(objects, err)
	}
	out := map[string][]read{}
	for _, object := range objects {
		if strings.Contains(object, "arm64") {
			continue // the same fields
		}
		spec, err := ebpf.LoadCollectionSpec(object)
		if err != nil {
			t.Fatal(err)
		}
		for name, program := range spec.Programs {
			here := map[string]read{}
			for i := range program.Instructions {
				relo := btf.CORERelocationMetadata(&program.Instructions[i])
				if relo == nil {
					continue
				}
				v := reflect.ValueOf(relo).Elem() // it has no accessors for these
				kind := v.FieldByName("kind").Uint()
				if kind != byteOffset && kind != byteSize {
					continue
				}
				local, err := spec.Types.TypeByID(btf.TypeID(v.FieldByName("id").Uint()))
				if err != nil {
					t.Fatal(err)
				}
				path, typ := walk(local, v.FieldByName("accessor"))
				if !scalar(typ) {
					continue
				}
				bytes, err := btf.Sizeof(typ)
				if err != nil {
					t.Fatal(err)
				}
				r := here[path]
				here[path] = read{program: filepath.Base(filepath.Dir(object)) + "." + name, bytes: bytes, sized: r.sized || kind == byteSize}
			}
			for path, r := range here {
				out[path] = append(out[path], r)
			}
		}
	}
	return out
}

// walk follows an accessor from a struct to a field.
func walk(from btf.Type, accessor reflect.Value) (path string, typ btf.Type) {
	typ = btf.UnderlyingType(from)
	path, _, _ = strings.Cut(from.TypeName(), "___")
	for i := 1; i < accessor.Len(); i++ {
		n := int(accessor.Index(i).Int())
		switch t := typ.(type) {
		case *btf.Struct:
			path, typ = path+"."+t.Members[n].Name, btf.UnderlyingType(t.Members[n].Type)
		case *btf.Union:
			path, typ = path+"."+t.Members[n].Name, btf.UnderlyingType(t.Members[n].Type)
		case *btf.Array:
			typ = btf.UnderlyingType(t.Type)
		}
	}
	return path, typ
}

func scalar(typ btf.Type) bool {
	switch btf.UnderlyingType(typ).(type) {
	case *btf.Int, *btf.Pointer, *btf.Enum:
		return true
	}
	return false
}

// record writes the sizes of fields on the kernel of a BTF file.
func record(t *testing.T, path string, reads map[string][]read) {
	t.Helper()
	kernel, err := btf.LoadSpec(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, field := range slices.Sorted(maps.Keys(reads)) {
		if bytes, ok := sizeOn(kernel, field); ok {
			fmt.Fprintf(&out, "%s %d\n", field, bytes)
		}
	}
	if err := os.WriteFile(filepath.Join("testdata/fields", filepath.Base(path)), []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// sizeOn is the size of a field on a kernel; false: it has none of that name.
func sizeOn(kernel *btf.Spec, field string) (bytes int, ok bool) {
	words := strings.Split(field, ".")
	var found *btf.Struct
	if kernel.TypeByName(words[0], &found) != nil {
		return 0, false
	}
	var typ btf.Type = found
	for _, word := range words[1:] {
		if typ = member(typ, word); typ == nil {
			return 0, false
		}
	}
	if a, isArray := btf.UnderlyingType(typ).(*btf.Array); isArray {
		typ = a.Type
	}
	bytes, err := btf.Sizeof(typ)
	return bytes, err == nil
}

// member is a field's type, also of one in a struct or union without a name; nil: there is none.
func member(typ btf.Type, name string) btf.Type {
	var all []btf.Member
	switch t := btf.UnderlyingType(typ).(type) {
	case *btf.Struct:
		all = t.Members
	case *btf.Union:
		all = t.Members
	}
	for _, m := range all {
		if m.Name == name {
			return m.Type
		}
		if m.Name == "" {
			if found := member(m.Type, name); found != nil {
				return found
			}
		}
	}
	return nil
}
