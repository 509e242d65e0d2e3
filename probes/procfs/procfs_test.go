package procfs

import (
	"errors"
	"io/fs"
	"os"
	"testing"
)

func TestParseStat(t *testing.T) {
	for text, want := range map[string]Stat{
		"1 (sh) S 0 1 1 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4242 99 1":       {0, false, 4, 4242, 99},
		"2 (a) b) 5 6) R 7 1 1 0 -1 64 5 6 7 8 9 10 11 12 20 0 1 0 77 98 1": {7, false, 64, 77, 98},
		"8 (a) Z 7 1 1 0 -1 64 5 6 7 8 9 10 11 12 20 0 1 0 77 0 1":          {7, true, 64, 77, 0},
		"8 (a) Z 7 1 1 0 -1 64 5 6 7 8 9 10 11 12 20 0 2 0 77 0 1":          {7, false, 64, 77, 0},
		"8 (a) X 0 1 1 0 -1 64 5 6 7 8 9 10 11 12 20 0 2 0 77 0 1":          {0, true, 64, 77, 0},
		"9 (a) S 7 1 1 0 -1 64 5 6 7 8 9 10 11 12 20 0 -1 0 77 0 1":         {},
		"3 (sh) S 0 1": {},
		"4 (sh) S 0 1 1 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 x 99 1":                           {},
		"5 (sh) S 99999999999 1 1 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4242 99 1":              {},
		"6 a S 0 1 1 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4242 99 1":                           {},
		"7 (sh) S 0 1 1 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4242 99999999999999999999999 1 1": {},
		"": {},
	} {
		if got, err := parseStat([]byte(text)); got != want || (err == nil) != (want.StartTick > 0) {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestReadStat(t *testing.T) {
	s, err := ReadStat("/proc", int32(os.Getpid()))
	if err != nil || s.Parent != int32(os.Getppid()) || s.StartTick == 0 || s.SizeBytes == 0 || s.Ended {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := ReadStat(t.TempDir(), 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process that is gone: %v", err)
	}
}

func TestReadIsBounded(t *testing.T) {
	if b, err := Read("/proc/self/maps", 10); err != nil || len(b) != 10 {
		t.Errorf("%q, %v", b, err)
	}
}

// A process chooses its name.
func FuzzParseStat(f *testing.F) {
	f.Add([]byte("1 (a) S 0 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 1 1 1 1 1 1"))
	f.Add([]byte("1 (((((( ) R"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseStat(b); err != nil && s != (Stat{}) {
			t.Errorf("%+v beside %v", s, err)
		}
	})
}
