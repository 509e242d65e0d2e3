package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// legalName fits LICENSE, LICENCE.txt, LICENSE.libyaml, Cephes-LICENSE, COPYING, NOTICE.txt, PATENTS;
// of folders THIRD_PARTY_LICENSES.
var legalName = regexp.MustCompile(`(?i)^([a-z0-9_-]*[-_])?(un)?(licen[sc]e|copying|notice|patents|copyright)s?([-_.].*)?$`)

const intro = `THIRD-PARTY NOTICES

The programs trimtab and trimtab-nvml contain parts of the Go modules below.
Each module's own licences and notices follow its name and version, in full.
stdlib is Go's standard library and runtime. Of a C header that a module's Go code
is made from or compiled with, the notice at its head follows as well.
`

// libbpf is no Go module: the BPF programs in trimtab are compiled with its headers.
const libbpf = "libbpf"

// notices renders the licence files of all modules; one without any is an error.
func notices(modules []module) ([]byte, error) {
	var b bytes.Buffer
	var missing []error
	b.WriteString(intro)
	for _, m := range modules {
		names, err := legalFiles(m)
		if err != nil {
			missing = append(missing, err)
			continue
		}
		fmt.Fprintf(&b, "\n%s\n%s %s\n", strings.Repeat("=", 80), m.path, m.version)
		for _, name := range names {
			text, err := os.ReadFile(filepath.Join(m.dir, name))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.path, err)
			}
			text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
			fmt.Fprintf(&b, "\n---- %s\n\n%s\n", name, bytes.Trim(text, "\n"))
		}
		if err := headers(&b, m); err != nil {
			missing = append(missing, err)
		}
	}
	return b.Bytes(), errors.Join(missing...)
}

// heads are a C file's comments before its code.
var heads = regexp.MustCompile(`(?s)\A(?:\s*/\*.*?\*/)+`)

// headers adds the notices at the heads of C headers in folders of linked packages: NVIDIA's asks for
// that, and no licence file has it. Those of Go's own are stdlib's.
func headers(b *bytes.Buffer, m module) error {
	if m.path == stdlib {
		return nil
	}
	for _, folder := range m.folders {
		names, err := filepath.Glob(filepath.Join(m.dir, folder, "*.h"))
		if err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return fmt.Errorf("%s: %w", m.path, err)
			}
			text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
			if head := notice(heads.Find(text)); head != nil {
				fmt.Fprintf(b, "\n---- %s\n\n%s\n", filepath.Join(folder, filepath.Base(name)), head)
			}
		}
	}
	return nil
}

// notice is the first of some comments that claims a copyright; nil: none.
func notice(comments []byte) []byte {
	for _, c := range bytes.SplitAfter(comments, []byte("*/")) {
		if bytes.Contains(c, []byte("Copyright")) {
			return bytes.TrimSpace(c)
		}
	}
	return nil
}

// legalFiles are those that hold for the linked packages: in the module's root, in its
// folder of other people's licences, and in each folder down to a linked package.
func legalFiles(m module) ([]string, error) {
	folders := map[string]bool{".": true}
	for _, folder := range m.folders {
		for ; folder != "."; folder = filepath.Dir(folder) {
			folders[folder] = true
		}
	}
	var names []string
	for folder := range folders {
		entries, err := os.ReadDir(filepath.Join(m.dir, folder))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.path, err)
		}
		for _, e := range entries {
			name := filepath.Join(folder, e.Name())
			switch {
			case !legalName.MatchString(e.Name()) || slices.Contains([]string{".go", ".sh"}, filepath.Ext(name)):
			case e.Type().IsRegular():
				names = append(names, name)
			case e.IsDir() && folder == ".":
				others, err := filepath.Glob(filepath.Join(m.dir, name, "*"))
				if err != nil {
					return nil, fmt.Errorf("%s: %w", m.path, err)
				}
				for _, other := range others {
					names = append(names, filepath.Join(name, filepath.Base(other)))
				}
			}
		}
	}
	if !slices.ContainsFunc(names, isLicence) {
		return nil, fmt.Errorf("%s %s has no licence file in %s: do not ship it before its licence is known", m.path, m.version, m.dir)
	}
	slices.Sort(names)
	return names, nil
}

// isLicence: a notice or a list of patents alone permits nothing.
func isLicence(name string) bool {
	name = strings.ToLower(name)
	return filepath.Dir(name) == "." && (strings.Contains(name, "licen") || strings.Contains(name, "copying"))
}
