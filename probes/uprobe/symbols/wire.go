package symbols

import (
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"
)

// One file is asked for by one packet, with the open file beside it, and answered by
// one or more.
const (
	// packetSymbols keeps a packet below the 212,992 bytes that Linux sends in one:
	// JSON takes six bytes at the most for one of a name.
	packetSymbols  = 64
	maxPacketBytes = 128 << 10
)

var errNonsense = errors.New("an answer that makes no sense")

// request goes with the file to read.
type request struct {
	Want
	Limit time.Duration `json:"limit"` // for reading
}

// answer is one packet; of several the last has no More.
type answer struct {
	Symbols []Symbol `json:"symbols,omitempty"`
	More    bool     `json:"more,omitempty"`
	// Why there are none; at most one of these.
	Failed    string `json:"failed,omitempty"`
	OutOfTime bool   `json:"out_of_time,omitempty"`
	None      bool   `json:"none,omitempty"`
}

func (a answer) error() error {
	switch {
	case a.OutOfTime:
		return ErrOutOfTime
	case a.None:
		return ErrNone
	case a.Failed != "":
		return errors.New(a.Failed)
	}
	return nil
}

// answersTo puts what Find said into packets. Names that are not text are of no
// interest to anybody.
func answersTo(found []Symbol, err error) (packets []answer) {
	switch {
	case errors.Is(err, ErrOutOfTime):
		return []answer{{OutOfTime: true}}
	case errors.Is(err, ErrNone):
		return []answer{{None: true}}
	case err != nil:
		return []answer{{Failed: err.Error()}}
	}
	var a answer
	for _, s := range found {
		if !utf8.ValidString(s.Name) {
			continue
		}
		if len(a.Symbols) == packetSymbols {
			a.More = true
			packets = append(packets, a)
			a = answer{}
		}
		a.Symbols = append(a.Symbols, s)
	}
	return append(packets, a)
}

// gather puts packets together again. Who reads hostile files is not believed more
// than it must be: what it says is no more and no larger than Find may say, of two tables.
// broken is what it failed for, err what it says of the file.
func gather(next func() ([]byte, error), size uint64) (found []Symbol, broken, err error) {
	for {
		packet, err := next()
		if err != nil {
			return nil, err, nil
		}
		var a answer
		if json.Unmarshal(packet, &a) != nil {
			return nil, errNonsense, nil
		}
		if found = append(found, a.Symbols...); len(found) > 2*maxSymbols || a.More && len(a.Symbols) == 0 {
			return nil, errNonsense, nil
		}
		for _, s := range a.Symbols {
			if len(s.Name) > maxNameBytes || s.Offset >= size {
				return nil, errNonsense, nil
			}
		}
		if !a.More {
			return found, nil, a.error()
		}
	}
}
