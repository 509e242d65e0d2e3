package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/policies"
)

// Lines above and below what scrolls.
const (
	headLines = 4 // daemon, host, devices, notice
	tableTop  = headLines + 1
	footLines = 3  // two of what is selected, one of keys
	jobTop    = 10 // where the bars of a job begin
	jobFoot   = 3  // two of what letters stand for, one of keys
)

// rowsShown is how many lines of the page scroll.
func (m *Model) rowsShown() int {
	switch m.view {
	case viewJob:
		return max(m.height-jobTop-jobFoot, 0)
	case viewContainers:
		return max(m.height-tableTop-footLines, 0)
	case viewDevices:
		return max(m.height-tableTop-1, 0)
	}
	return max(m.height-headLines-1, 0)
}

// lines is how many lines a page that scrolls has.
func (m *Model) lines() int {
	switch m.view {
	case viewDevices:
		return len(m.data.Devices.Devices)
	case viewJob:
		return len(m.windows())
	case viewExplain:
		return len(m.explained())
	case viewHelp:
		return len(help())
	}
	return 0
}

// View draws the page.
func (m *Model) View() *Frame {
	f := newFrame(m.width, m.height)
	m.head(f)
	switch m.view {
	case viewDevices:
		m.devices(f)
	case viewJob:
		m.jobPage(f)
	case viewExplain:
		m.page(f, m.explained())
	case viewHelp:
		m.page(f, help())
	default:
		m.table(f, m.list.top, m.rowsShown())
		if r := m.list.current(); r != nil { // what the table has no room for
			m.wrap(f, f.Height-footLines, r.cells.Name+": "+render.Headline(*r.container, m.clock), m.old(StylePlain))
		}
	}
	m.foot(f)
	return f
}

// Once is one frame of everything that the table has, for a reader that does not scroll.
func (m *Model) Once() *Frame {
	f := newFrame(m.width, tableTop+max(len(m.list.shown), 1)+1)
	m.head(f)
	m.list.selected = ""
	m.table(f, 0, len(m.list.shown))
	if m.list.hidden > 0 {
		f.text(0, f.Height-1, f.Width, "not watched: "+strconv.Itoa(m.list.hidden)+" (--all shows them)", StylePlain)
	}
	return f
}

// old is a style, or faint where what is shown is old.
func (m *Model) old(s Style) Style {
	if m.stale() {
		return StyleFaint
	}
	return s
}

func (m *Model) head(f *Frame) {
	switch s := m.data.Status; {
	case m.view == viewJob: // it has its own
	case m.known:
		m.title(f, render.Daemon(s.Daemon))
		f.text(0, 1, f.Width, render.Host(s), m.old(StylePlain))
		f.text(0, 2, f.Width, m.deviceLine(), m.old(StylePlain))
	default:
		f.text(0, 0, f.Width, "trimtab top", StyleTitle)
		if l := m.link.failed; l != nil && l.Hint != "" {
			f.text(0, tableTop, f.Width, "hint: "+render.Clean(l.Hint), StylePlain)
		}
	}
	text, style := m.notice()
	f.text(0, 3, f.Width, text, style)
}

// title writes the first line, with the time of what is shown at its end.
func (m *Model) title(f *Frame, text string) {
	clock := m.timeOf(m.data.Status.UnixNs)
	f.text(0, 0, f.Width-len(clock)-1, text, m.old(StyleTitle))
	f.text(max(f.Width-len(clock), 0), 0, len(clock), clock, m.old(StylePlain))
}

// deviceLine is each device in a few words.
func (m *Model) deviceLine() string {
	d := m.data.Devices
	if len(d.Devices) == 0 {
		return "no GPU (" + render.Clean(d.Why) + ")"
	}
	var out []string
	for _, dev := range d.Devices {
		c := render.DeviceCellsOf(dev)
		switch {
		case dev.Sliced:
			continue
		case dev.Lost != "":
			out = append(out, c.Device+": lost")
		default:
			out = append(out, strings.TrimSuffix(c.Device+": "+c.Duty+" "+c.Memory, " -"))
		}
	}
	return "GPU " + strings.Join(out, "; ")
}

// table draws so many rows from one on.
func (m *Model) table(f *Frame, first, rows int) {
	l, columns := &m.list, place(f.Width)
	x := 0
	for _, c := range columns {
		title, style := c.title, StyleHeader
		if c.index == l.sort {
			style = StyleSorted
		}
		f.text(x, headLines, c.width, title, style)
		x += c.width + 1
	}
	if m.known && len(l.shown) == 0 {
		f.text(0, tableTop, f.Width, m.nothing(), StylePlain)
	}
	for i := range min(rows, len(l.shown)-first) {
		r, y, x := l.shown[first+i], tableTop+i, 0
		for _, c := range columns {
			cell := c.cell(r)
			if c.index == names && c.width >= 5 {
				cell = render.ClipMiddle(cell, c.width)
			}
			f.text(x, y, c.width, cell, m.old(StylePlain))
			x += c.width + 1
		}
		if r.container.Key == l.selected {
			f.paint(y, StyleSelected)
		}
	}
}

// nothing says why the table is empty.
func (m *Model) nothing() string {
	switch l := &m.list; {
	case l.filter != "":
		return "no container fits the filter"
	case l.hidden > 0:
		return "no container is watched; not watched: " + strconv.Itoa(l.hidden)
	}
	return "no containers are running"
}

// wrap writes a text into two lines; what does not fit is cut.
func (m *Model) wrap(f *Frame, y int, text string, style Style) {
	if !textFits(text, f.Width) {
		var head string
		head, text = fold(text, f.Width)
		f.text(0, y, f.Width, head, style)
		y++
	}
	f.text(0, y, f.Width, text, style)
}

// folded are the lines of a text, folded to so many columns; what is folded is indented.
func folded(text string, columns int) (out []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		for !textFits(line, columns) && columns > 20 {
			head, tail := fold(line, columns)
			out = append(out, head)
			line = "          " + tail
		}
		out = append(out, line)
	}
	return out
}

// fold divides a text that is longer than so many columns: after a word where that leaves
// half of the line, and else in the midst.
func fold(text string, columns int) (head, tail string) {
	cut, blank, x := 0, 0, 0
	for rest := text; rest != ""; {
		_, width, next := nextRune(rest)
		if x += width; x > columns {
			break
		}
		if rest[0] == ' ' && x > columns/2 {
			blank = len(text) - len(rest)
		}
		rest = next
		cut = len(text) - len(rest)
	}
	if blank > 0 {
		return text[:blank], text[blank+1:]
	}
	return text[:cut], text[cut:]
}

// foot is the line of keys, or the filter that is being typed.
func (m *Model) foot(f *Frame) {
	y := f.Height - 1
	l := &m.list
	if l.typing {
		f.text(0, y, f.Width, "/"+l.filter+"_   enter keeps it, esc shows all", StyleTitle)
		return
	}
	keys := map[view]string{
		viewContainers: "q quit  ? help  enter job  e explain  d GPUs  / filter  <> sort  a all",
		viewDevices:    "q quit  ? help  esc back  c containers", viewJob: "q quit  ? help  esc back  e explain",
		viewExplain: "q quit  ? help  esc back", viewHelp: "q quit  esc back",
	}[m.view]
	if m.view == viewContainers && l.hidden > 0 {
		keys += fmt.Sprintf(" (+%d)", l.hidden)
	}
	if m.view == viewContainers && l.filter != "" {
		keys = fmt.Sprintf("filter %q: %d of %d; esc shows all", l.filter, len(l.shown), len(l.rows))
	}
	f.text(0, y, f.Width, keys, StyleFaint)
}

// page draws lines of text that scroll.
func (m *Model) page(f *Frame, lines []string) {
	for i := range min(m.rowsShown(), len(lines)-m.scroll) {
		f.text(0, headLines+i, f.Width, lines[m.scroll+i], m.old(StylePlain))
	}
}

func (m *Model) explained() []string {
	text := render.Explain(m.job, m.clock)
	if m.gone {
		text = "it has ended; this was last known of it\n\n" + text
	}
	return folded(text, m.width)
}

// devices draws the table of devices.
func (m *Model) devices(f *Frame) {
	widths := []int{10, 12, 5, 0, 13, 0, 0} // then the holders; 0: not on a narrow terminal
	if f.Width >= 110 {
		widths = []int{10, 22, 5, 5, 15, 6, 6}
	}
	f.row(headLines, StyleHeader, widths, "GPU", "NAME", "DUTY", "SM", "MEMORY", "POWER", "TEMP", "HOLDERS")
	all := m.data.Devices.Devices
	for i := range min(m.rowsShown(), len(all)-m.scroll) {
		c := render.DeviceCellsOf(all[m.scroll+i])
		f.row(tableTop+i, m.old(StylePlain), widths, c.Device, c.Name, c.Duty, c.SM, c.Memory, c.Power, c.Temp, c.Holders)
	}
}

// jobPage tells of one job: what was done, why, and its windows as bars.
func (m *Model) jobPage(f *Frame) {
	c, style := m.job, m.old(StylePlain)
	title := strings.Join([]string{render.CellsOf(c).Name, render.Standing(c), render.Clean(c.Image)}, "  ")
	if c.Enrolment.Job != "" {
		title += "  of job " + render.ASCII(c.Enrolment.Job)
	}
	if m.gone {
		title += "  has ended; this was last known of it"
	}
	m.title(f, title)
	m.wrap(f, 1, render.Headline(c, m.clock), style)
	if c.Verdict.Class != "" {
		m.wrap(f, 4, "What bounds it: "+render.CauseWords(c.Verdict), style)
	}
	m.wrap(f, 6, "Limits: "+cmp.Or(render.Limits(c), "-"), style)
	f.text(0, 8, f.Width, "Loan "+render.Loan(c)+"  latest trial "+render.LatestTrial(c)+"  speedup "+render.CellsOf(c).Speedup+"  GPUs "+cmp.Or(dutyByKey(m.data.Devices)[c.Key], "-"), style)
	m.bars(f, jobTop)
}

// bars draws a job's windows, the newest first, and what the letters stand for.
func (m *Model) bars(f *Frame, top int) {
	widths, barAt := []int{8, 12, 5}, 28
	f.row(top-1, StyleHeader, widths, "TIME", "RATE", "CPU", "WHERE ITS TIME WENT, WINDOW BY WINDOW")
	all := m.windows()
	if len(all) == 0 {
		f.text(0, top, f.Width, "no window has closed yet", m.old(StylePlain))
		return
	}
	for i := range min(m.rowsShown(), len(all)-m.scroll) {
		w, y := all[len(all)-1-m.scroll-i], top+i
		f.row(y, m.old(StylePlain), widths, m.timeOf(w.unixNs), w.rate, w.quota)
		x := barAt
		for part, columns := range split(w.breakdown, f.Width-barAt) {
			x = f.text(x, y, columns, strings.Repeat(string(letter(policies.Part(part))), columns), m.old(PartStyle(policies.Part(part))))
		}
	}
	m.legend(f, parts(all))
}

// legend says what letters stand for, in two lines.
func (m *Model) legend(f *Frame, all []policies.Part) {
	x, y := 0, f.Height-jobFoot
	for _, p := range all {
		words := render.PartWords(p)
		if need := len(words) + 4; x > 0 && x+need > f.Width {
			if x, y = 0, y+1; y >= f.Height-1 {
				return
			}
		}
		x = f.text(x, y, 1, string(letter(p)), PartStyle(p))
		x = f.text(x+1, y, f.Width-x-1, words, StyleFaint) + 2
	}
}

// help is the page of keys.
func help() []string {
	return []string{
		"  up down j k       select a container, or scroll",
		"  page keys, space  a page; home end g G: to the first, to the last",
		"  enter             one job: its limits, and where its time went, by window",
		"  e                 all that `trimtab explain` tells of it",
		"  d or tab          GPUs and who holds them; c or tab: containers again",
		"  /                 show what holds a text: name, team, job, image, state, cause",
		"  < >               sort by the column before, by the next; r: the other way",
		"  a                 also containers that are not watched, or not",
		"  R                 ask the daemon now; ctrl-L: draw everything anew",
		"  esc               back; q or ctrl-C: quit; ctrl-Z: stop until `fg`",
		"",
		"STATE    watched, measured, lent, settled, trial, returned, yielded;",
		"         held, pending: a restore; gpu lost: access to its GPU",
		"RATE     steps per second; after ≈ it counts something else",
		"STALLED  share of time in which it neither computed nor waited for its device",
		"CPU      now ← originally, in CPUs; or the weight or memory that was changed",
		"LOAN     CPUs lent above the owner's quota; = once that is what it can use",
		"SPEEDUP  measured against before the first change; after would: predicted",
	}
}

// letters of the parts, in their order.
const letters = "CTBDtbsrwiPM."

// letter is the character that stands for a part in a bar.
func letter(p policies.Part) rune {
	if int(p) < len(letters) {
		return rune(letters[p])
	}
	return '?'
}

// split divides so many columns among the parts by their shares of the wall time, so that the
// sum is kept: each gets the whole columns that it fills, and the rest go to the largest
// remainders, the first of equals first. Parts that are more than the whole are scaled to it.
func split(b policies.Breakdown, columns int) (out [policies.NumParts]int) {
	whole, sum := float64(b.WallNs), 0.0
	for _, ns := range b.Ns {
		sum += max(float64(ns), 0)
	}
	if whole = max(whole, sum); whole <= 0 || columns <= 0 {
		return out
	}
	var rest [policies.NumParts]float64
	filled := 0
	for p, ns := range b.Ns {
		exact := max(float64(ns), 0) / whole * float64(columns)
		out[p] = int(exact)
		rest[p] = exact - float64(out[p])
		filled += out[p]
	}
	total := int(sum/whole*float64(columns) + 0.5)
	for ; filled < total; filled++ {
		most := 0
		for p := range rest {
			if rest[p] > rest[most] {
				most = p
			}
		}
		out[most]++
		rest[most] = -1
	}
	return out
}

// parts are those that some of the windows hold, in their order.
func parts(windows []window) (out []policies.Part) {
	for p := range policies.NumParts {
		if slices.ContainsFunc(windows, func(w window) bool { return w.breakdown.Ns[p] > 0 }) {
			out = append(out, p)
		}
	}
	return out
}
