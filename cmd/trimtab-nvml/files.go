//go:build cgo

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/nvml/wire"
)

// landlockFlag is the first argument of a child that started itself anew under Landlock; its value
// is the kernel's ABI, and after colons which folders did not answer.
const landlockFlag = "--landlock="

// virtualNode is where the virtual GPU's library finds its node (test/vgpu). Of the daemon's
// environment it is root's to say.
const virtualNode = "TRIMTAB_VGPU_NODE"

// What the child may do to files, by groups of Landlock's rights. None makes, removes or renames one.
const (
	readFile = landlock.AccessFSSet(ll.AccessFSReadFile)
	readTree = readFile | ll.AccessFSReadDir
	useFile  = readFile | ll.AccessFSWriteFile | ll.AccessFSIoctlDev
	runFile  = readFile | ll.AccessFSExecute
)

// fileRules is what Landlock keeps the child to.
type fileRules struct {
	abi   int    // of the kernel; 0: it opens what its user ID may
	lacks string // why it does
	// silent are the loader's folders that do not answer, and are left out.
	silent []string
	err    error // it cannot start for them
}

// confineFiles starts the program anew, for a library, under Landlock: a ruleset binds the thread
// that asks and what that thread executes, and the C library's threads are not Go's to ask. So all
// threads, and the loader, are bound from their first instruction. On a kernel without it the
// program goes on. The parent is told of processes that hang.
func confineFiles(library string, parent io.Writer) fileRules {
	if len(os.Args) > 1 {
		if said, again := strings.CutPrefix(os.Args[1], landlockFlag); again {
			abi, silent, _ := strings.Cut(said, ":")
			n, err := strconv.Atoi(abi)
			return fileRules{abi: n, silent: wire.PathFolders(silent), err: err}
		}
	}
	abi, err := ll.LandlockGetABIVersion()
	if err != nil {
		return fileRules{lacks: noLandlock(err)}
	}
	keepFiles(false)
	defer keepFiles(true)
	mapped, err := mappedFiles()
	var f found
	if err == nil {
		f, err = lookAll(library, knownSilent(os.Args), lookTime, parent)
	}
	if err == nil {
		err = startAnew(abi, append(openable(f), landlock.PathAccess(runFile, mapped...).IgnoreIfMissing()), mapped, f.silent)
	}
	return fileRules{err: fmt.Errorf("landlock: %w", err)}
}

// knownSilent is what the parent knows not to answer: in each a process of an earlier child hangs.
func knownSilent(args []string) (known []string) {
	for _, arg := range args {
		if path, is := strings.CutPrefix(arg, wire.SilentFlag); is {
			known = append(known, path)
		}
	}
	return known
}

// noLandlock is why a kernel has none to offer.
func noLandlock(err error) string {
	switch {
	case errors.Is(err, unix.ENOSYS):
		return "this kernel has no Landlock (Linux 5.13 or later may have it)"
	case errors.Is(err, unix.EOPNOTSUPP):
		return "Landlock is not switched on in this kernel (its parameter lsm=)"
	case errors.Is(err, unix.EPERM):
		return "a filter of system calls refuses Landlock (the service's SystemCallFilter=)"
	}
	return "Landlock does not answer: " + err.Error()
}

// startAnew executes this program under rules, from a thread that is locked to its goroutine. It
// returns only with an error: that thread may then be bound, and must load no library. needed are
// files without which the program would end before it could say a word, silent folders that it is to
// leave alone.
func startAnew(abi int, rules []landlock.Rule, needed, silent []string) error {
	// What a library is refused is for the kernel's audit log (Linux 6.15); what is tried here is not.
	config := landlock.V11.BestEffort().DisableLoggingForOriginatingProcess().EnableLoggingForSubprocesses()
	fd, flags, err := config.NewRulesetFD(rules...)
	if err != nil {
		return err
	}
	if fd < 0 {
		return errors.New("the kernel offers it, and takes no rule")
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	// The kernel keeps "dies with the parent" by thread, and what a thread executes has its own.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("die with the parent: %w", err)
	}
	if err := ll.LandlockRestrictSelf(fd, flags); err != nil { // NO_NEW_PRIVS is the parent's gift
		return fmt.Errorf("restrict: %w", err)
	}
	if err := holding(needed); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	flag := landlockFlag + strings.Join(append([]string{strconv.Itoa(abi)}, silent...), ":")
	keepFiles(true)
	return fmt.Errorf("start anew: %w", unix.Exec(self, append([]string{os.Args[0], flag}, os.Args[1:]...), wire.WithoutSilent(os.Environ(), silent)))
}

// holding tells whether the rules bind this thread, and leave it what is needed.
func holding(needed []string) error {
	if fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); !errors.Is(err, unix.EACCES) {
		return fmt.Errorf("the rules do not hold: open / gives %d, %w", fd, err)
	}
	for _, file := range needed {
		fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("the rules keep trimtab-nvml from %s: %w", file, err)
		}
		_ = unix.Close(fd)
	}
	return nil
}

// mappedFiles are the program, its loader and its libraries, wherever the host has them.
func mappedFiles() ([]string, error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	var files []string
	for line := range strings.Lines(string(maps)) {
		at := strings.Index(line, " /")
		if at < 0 {
			continue
		}
		// Where one was replaced since, the new one is executed.
		file := strings.TrimSuffix(strings.TrimSpace(line[at:]), " (deleted)")
		if _, err := os.Stat(file); err == nil && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	return files, nil
}

// openable are the rules for what was found of a library: what NVML needs. No other file can be
// opened, and none made, renamed or removed.
func openable(f found) (rules []landlock.Rule) {
	permit := func(rights landlock.AccessFSSet, paths ...string) {
		paths = slices.DeleteFunc(slices.Clone(paths), func(path string) bool {
			_, err := os.Stat(path) // of what cannot even be looked up, no right could be had
			return err != nil
		})
		rules = append(rules, landlock.PathAccess(rights, paths...).IgnoreIfMissing())
	}
	rules = append(rules, landlock.PathAccess(readTree, f.folders...).IgnoreIfMissing(), landlock.PathAccess(readFile, f.files...).IgnoreIfMissing())
	permit(readFile, "/etc/ld.so.cache", "/etc/ld.so.preload")
	// What the kernel tells of itself. Landlock keeps /proc/PID of others closed where their memory,
	// open files, root or environment could be read.
	permit(readTree, "/proc", "/sys/bus", "/sys/class", "/sys/dev", "/sys/devices", "/sys/firmware/devicetree", "/sys/module")
	permit(readTree, "/sys/kernel/mm", "/sys/fs/cgroup") // Go's run time looks at huge pages, and for a quota
	permit(readFile, "/dev/random", "/dev/urandom")
	permit(useFile, "/dev/null", "/dev/zero")
	var nodes []string
	for _, pattern := range wire.DeviceNodes() {
		found, _ := filepath.Glob(pattern) // the patterns are good
		nodes = append(nodes, found...)
	}
	for _, node := range nodes {
		switch of, err := os.Lstat(node); {
		case err != nil: // gone
		case of.IsDir(): // nvidia-caps: MIG's devices, which come and go
			permit(useFile|ll.AccessFSReadDir, node)
		case of.Mode()&fs.ModeCharDevice != 0:
			permit(useFile, node)
		}
	}
	if node := os.Getenv(virtualNode); node != "" {
		if of, err := os.Lstat(node); err == nil && of.Mode().IsRegular() {
			permit(readFile|ll.AccessFSWriteFile, node)
		}
	}
	return rules
}

// loaderConf names the folders that the loader's cache is made from.
const loaderConf = "/etc/ld.so.conf"

// libraryFolders are where the loader finds libraries: its own folders, those that are searched by
// LD_LIBRARY_PATH, and those of ldconfig. Nix's and Guix's loaders have theirs in the store, which
// holds no secrets, and NixOS links to the driver's there. None is touched that may refuses.
func libraryFolders(searched string, may func(path string) bool) []string {
	dirs := []string{"/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64", "/run/opengl-driver/lib", "/nix/store", "/gnu/store"}
	dirs = append(dirs, wire.PathFolders(searched)...)
	dirs = append(dirs, confFolders(loaderConf, maxIncludes, may)...)
	return slices.DeleteFunc(dirs, func(dir string) bool {
		if !filepath.IsAbs(dir) || !may(dir) {
			return true
		}
		of, err := os.Stat(dir)
		if err != nil || !of.IsDir() {
			return true
		}
		real, err := filepath.EvalSymlinks(dir)
		return err != nil || real == "/" // all of the host is no folder of libraries
	})
}

const (
	maxIncludes = 8       // files of folders that include others, deep
	maxConf     = 1 << 16 // bytes of one
)

// confFolders are the folders that a file of ldconfig's names.
func confFolders(file string, deep int, may func(path string) bool) (dirs []string) {
	if deep == 0 || !may(file) {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	for lines, read := bufio.NewScanner(f), 0; read < maxConf && lines.Scan(); read += len(lines.Bytes()) + 1 {
		line, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t:,", r) })
		switch {
		case len(words) == 0 || words[0] == "hwcap":
		case words[0] == "include":
			for _, pattern := range words[1:] {
				if !filepath.IsAbs(pattern) {
					pattern = filepath.Join(filepath.Dir(file), pattern)
				}
				if !may(pattern) {
					continue
				}
				more, _ := filepath.Glob(pattern) // a pattern that is none names nothing
				for _, m := range more {
					dirs = append(dirs, confFolders(m, deep-1, may)...)
				}
			}
		default:
			for _, dir := range words {
				dir, _, _ = strings.Cut(dir, "=") // of libc4's time: a type
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// control is opened by every NVML.
const control = "/dev/nvidiactl"

// leftOut names the folders that do not answer; "" if all do.
func (r fileRules) leftOut() string {
	return cut(strings.Join(r.silent, ", "))
}

// cut is a text that the daemon takes: of no more than 4 KiB, with others.
func cut(text string) string {
	const most = 1024 // bytes
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// blame names the rules in a failure that they may be the cause of.
func (r fileRules) blame(f *wire.Failure) *wire.Failure {
	if left := r.leftOut(); left != "" {
		f = &wire.Failure{Why: f.Why + "; not searched for it, since it does not answer: " + left, Normal: f.Normal}
	}
	if r.abi == 0 {
		return f
	}
	fd, err := unix.Open(control, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return blamed(f, err)
}

// blamed is a failure under the rules, by what an open of NVML's own node gives. What is normal stays
// so, unless the library is kept from it.
func blamed(f *wire.Failure, open error) *wire.Failure {
	switch {
	case errors.Is(open, unix.EACCES):
		return &wire.Failure{Why: f.Why + "; the child may not open " + control + ": Landlock, or the node's owner and mode"}
	case f.Normal:
		return f
	}
	return &wire.Failure{Why: f.Why + "; the child opens only files that docs/security.md lists (Landlock): another that the library needs would be the cause"}
}
