package uprobe

import "testing"

// Names of files that are mapped, and of mounts, are a container's to choose.
func FuzzProcessFiles(f *testing.F) {
	f.Add([]byte("7f00-7fff r-xp 00000000 08:01 123 /usr/lib/libtorch_cpu.so\n"), []byte("25 30 0:23 / / rw - fuse.x y rw\n"), []byte("1 2 3"))
	f.Add([]byte("- r-xp  : \n"), []byte(" - \n"), []byte(""))
	f.Add([]byte("0-18446744073709551616 r-xp 0 ff:ff 99999999999999999999 x\n"), []byte("1 2 \xff:\xff / / - nfs"), []byte("-1"))
	f.Fuzz(func(t *testing.T, maps, mounts, statm []byte) {
		all := executableMaps(maps, []string{"libtorch"})
		for i, m := range all[min(1, len(all)):] {
			if i > 0 && hinted(m.path, []string{"libtorch"}) && !hinted(all[i].path, []string{"libtorch"}) {
				t.Fatalf("%q stands behind %q", m.path, all[i].path)
			}
		}
		mountTypes(mounts)
		sizeOf(statm)
		if pids := appendPIDs(nil, maps); len(pids) > maxProcesses {
			t.Fatalf("%d processes, %d are the most", len(pids), maxProcesses)
		}
	})
}
