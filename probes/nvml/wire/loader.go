package wire

import (
	"slices"
	"strings"
)

// LibraryPath is the variable by which the loader is told of more folders.
const LibraryPath = "LD_LIBRARY_PATH"

// PathFolders are the folders of a list such as that variable's.
func PathFolders(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ':' || r == ';' })
}

// WithoutSilent is an environment whose LD_LIBRARY_PATH leaves out what does not answer: a program's
// loader searches it.
func WithoutSilent(environ, silent []string) []string {
	out := slices.Clone(environ)
	for i, v := range out {
		if path, is := strings.CutPrefix(v, LibraryPath+"="); is {
			kept := slices.DeleteFunc(PathFolders(path), func(dir string) bool { return slices.Contains(silent, dir) })
			out[i] = LibraryPath + "=" + strings.Join(kept, ":")
		}
	}
	return out
}
