// Package top is what `trimtab top` shows: a model that messages change and frames that are
// drawn from it. It is pure: no clock, no terminal, no socket; the command feeds it. All that is
// shown the daemon said; only the age of it is reckoned here. The one trap: names and labels
// come from containers, so text reaches a Frame through its cells alone.
package top

import (
	"maps"
	"time"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/series"
	"github.com/trimtab/trimtab/tuner/state"
)

// slowAfter is how long an answer may take before it is said that it takes long.
const slowAfter = 3 * time.Second

// restartShown is for how long it is said that the daemon was restarted.
const restartShown = 30 * time.Second

// stuckAfter is how old the daemon's state may be though it answers; ticks are seconds long.
const stuckAfter = 60 * time.Second

// Msg is something that happened: one of the types below, or a Key.
type Msg any

// Data is a whole answer of the daemon.
type Data struct {
	At         time.Time // when it was there
	Status     api.Status
	Containers []state.Container
	Devices    api.Devices
	Hour       series.Series // of the job that is shown; none was asked for where it has no key
}

// Asked says that the daemon is being asked.
type Asked struct{ At time.Time }

// Failed says that the daemon did not answer.
type Failed struct{ Text, Hint string } // what went wrong, and what to do about it; Hint may be empty

// Tick says how late it is.
type Tick struct{ Now time.Time }

// Resized says how large the terminal is now.
type Resized struct{ Width, Height int }

// Action is what the command is to do after a message, beside drawing.
type Action uint8

// Actions.
const (
	ActionNone    Action = iota
	ActionQuit           // give the terminal back and end
	ActionSuspend        // give the terminal back and stop until continued
	ActionRefresh        // ask the daemon now
	ActionRedraw         // draw every cell anew
)

// view is one of the pages.
type view uint8

const (
	viewContainers view = iota
	viewDevices
	viewJob
	viewExplain
	viewHelp
)

// link is what is known of the daemon at the other end.
type link struct {
	askedAt     time.Time // zero: it is not being asked
	failed      *Failed   // the latest answer was none
	restartedAt time.Time
}

// Model is the state of the view. Its methods are for one goroutine.
type Model struct {
	width, height int
	clock         render.Clock
	link          link
	data          Data
	known         bool // data is an answer

	view   view
	before view // what esc goes back to
	scroll int  // of devices, explain and help: the first line shown
	job    state.Container
	gone   bool // the job has ended

	list list
	past map[string]*past
	hour hour
}

// Options are what the command line asks for.
type Options struct {
	Sort   string // a column's title, in lower case; "": by name
	Filter string
	All    bool // also containers that are not watched
	Zone   *time.Location
}

// SortColumns are what Options.Sort may be.
func SortColumns() []string {
	var out []string
	for _, c := range columns() {
		out = append(out, c.sortName())
	}
	return out
}

// New makes a model of 80 columns and 24 lines, without data.
func New(o Options) *Model {
	m := &Model{width: 80, height: 24, past: map[string]*past{}, clock: render.Clock{Zone: o.Zone}}
	m.list.filter, m.list.all = o.Filter, o.All
	for i, c := range columns() {
		if c.sortName() == o.Sort {
			m.list.sort = i
		}
	}
	return m
}

// Job is the key of the container that is shown alone; "": none is.
func (m *Model) Job() string {
	if m.view != viewJob {
		return ""
	}
	return m.job.Key
}

// Update takes in what happened.
func (m *Model) Update(msg Msg) Action {
	action := m.update(msg)
	m.scrollBy(0) // what there is to scroll may have become less
	m.list.follow(m.rowsShown())
	return action
}

func (m *Model) update(msg Msg) Action {
	switch msg := msg.(type) {
	case Resized:
		m.width, m.height = min(max(msg.Width, 1), 1000), min(max(msg.Height, 1), 1000)
	case Tick:
		m.clock.Now = msg.Now
	case Asked:
		m.link.askedAt = msg.At
	case Failed:
		m.link.askedAt, m.link.failed = time.Time{}, &msg
	case Data:
		m.take(msg)
	case Key:
		return m.press(msg)
	}
	return ActionNone
}

// take replaces what is shown.
func (m *Model) take(d Data) {
	was, now := m.data.Status.Daemon, d.Status.Daemon
	if m.known && (was.PID != now.PID || was.StartedUnixNs != now.StartedUnixNs) {
		m.link.restartedAt = d.At
	}
	m.link.askedAt, m.link.failed = time.Time{}, nil
	m.data, m.known = d, true
	if d.At.After(m.clock.Now) {
		m.clock.Now = d.At
	}
	here := make(map[string]bool, len(d.Containers))
	m.gone = true
	for i := range d.Containers {
		c := &d.Containers[i]
		here[c.Key] = true
		if m.past[c.Key] == nil {
			m.past[c.Key] = &past{}
		}
		m.past[c.Key].add(c, d.Status.UnixNs)
		if c.Key == m.job.Key {
			m.job, m.gone = *c, false
		}
	}
	maps.DeleteFunc(m.past, func(key string, _ *past) bool { return !here[key] && key != m.job.Key })
	if d.Hour.Key != "" {
		m.hour = hourOf(d.Hour)
	}
	m.list.fill(d)
}

// stale reports whether what is shown is older than it should be.
func (m *Model) stale() bool {
	return m.link.failed != nil || !m.link.askedAt.IsZero() && m.clock.Now.Sub(m.link.askedAt) >= slowAfter || m.stuck()
}

// stuck reports whether the daemon answers with an old state.
func (m *Model) stuck() bool {
	return m.known && m.clock.Now.Sub(time.Unix(0, m.data.Status.UnixNs)) >= stuckAfter
}

// notice is the line that says how things stand with the daemon; "": well.
func (m *Model) notice() (text string, style Style) {
	now, old := m.clock.Now, ""
	if m.known {
		of := m.data.Status.UnixNs
		old = age(now.Sub(time.Unix(0, of))) + " old, of " + m.timeOf(of) + ": "
	}
	switch l := m.link; {
	case l.failed != nil:
		return old + render.Clean(l.failed.Text), StyleAlarm
	case m.stuck():
		return old + "the daemon answers, and its state does not move", StyleAlarm
	case m.stale():
		return old + "the daemon has not answered for " + age(now.Sub(l.askedAt)), StyleAlarm
	case !m.known:
		return "asking the daemon", StylePlain
	case !l.restartedAt.IsZero() && now.Sub(l.restartedAt) < restartShown:
		return "the daemon was restarted; that was seen " + age(now.Sub(l.restartedAt)) + " ago", StyleTitle
	}
	return render.Lost(m.data.Status.Daemon), StyleAlarm
}

// timeOf is an instant's time of day.
func (m *Model) timeOf(unixNs int64) string {
	return time.Unix(0, unixNs).In(m.clock.Zone).Format("15:04:05")
}

// age is a length of time in whole seconds or more.
func age(d time.Duration) string { return render.Span(d.Seconds()) }
