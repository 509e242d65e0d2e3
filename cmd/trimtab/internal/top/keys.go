package top

import (
	"unicode/utf8"

	"github.com/gdamore/tcell/v3"
)

// Key is a key that was pressed.
type Key struct {
	Code tcell.Key
	Rune rune // of KeyRune, a key that writes a character
}

// maxFilter bounds what is typed, in characters.
const maxFilter = 64

func (m *Model) press(k Key) Action {
	switch k.Code {
	case tcell.KeyCtrlC:
		return ActionQuit
	case tcell.KeyCtrlZ:
		return ActionSuspend
	case tcell.KeyCtrlL:
		return ActionRedraw
	}
	if m.list.typing {
		m.typeFilter(k)
		return ActionNone
	}
	switch {
	case k.Code == tcell.KeyRune && k.Rune == 'q':
		return ActionQuit
	case k.Code == tcell.KeyRune && k.Rune == 'R':
		return ActionRefresh
	case k.Code == tcell.KeyRune:
		m.letter(k.Rune)
	case k.Code == tcell.KeyEscape || k.Code == tcell.KeyBackspace:
		m.back()
	case k.Code == tcell.KeyEnter && m.view == viewContainers:
		m.open(viewJob)
		return ActionRefresh // for its last hour
	case k.Code == tcell.KeyTab && m.view == viewContainers:
		m.show(viewDevices)
	case k.Code == tcell.KeyTab && m.view == viewDevices:
		m.show(viewContainers)
	default:
		m.move(k.Code)
	}
	return ActionNone
}

// letter does what a letter stands for.
func (m *Model) letter(r rune) {
	if code, moves := map[rune]tcell.Key{'j': tcell.KeyDown, 'k': tcell.KeyUp, ' ': tcell.KeyPgDn, 'g': tcell.KeyHome, 'G': tcell.KeyEnd}[r]; moves {
		m.move(code)
		return
	}
	switch r {
	case '?', 'h':
		if m.view == viewHelp {
			m.back()
			return
		}
		m.show(viewHelp)
	case 'd':
		m.show(viewDevices)
	case 'c':
		m.show(viewContainers)
	case 'e':
		m.open(viewExplain)
	}
	if m.view != viewContainers {
		return
	}
	switch r {
	case '/':
		m.list.typing = true
	case 'a':
		m.list.all = !m.list.all
		m.list.arrange()
	case '<', ',':
		m.list.sortBy(m.list.sort - 1)
	case '>', '.':
		m.list.sortBy(m.list.sort + 1)
	case 'r':
		m.list.reverse = !m.list.reverse
		m.list.arrange()
	}
}

func (m *Model) typeFilter(k Key) {
	l := &m.list
	switch {
	case k.Code == tcell.KeyRune && utf8.RuneCountInString(l.filter) < maxFilter:
		r, _ := shown(k.Rune)
		l.filter += string(r)
	case k.Code == tcell.KeyBackspace && l.filter != "":
		_, size := utf8.DecodeLastRuneInString(l.filter)
		l.filter = l.filter[:len(l.filter)-size]
	case k.Code == tcell.KeyEscape:
		l.filter, l.typing = "", false
	case k.Code == tcell.KeyEnter:
		l.typing = false
	case k.Code != tcell.KeyRune && k.Code != tcell.KeyBackspace:
		m.move(k.Code)
		return
	}
	l.arrange()
}

// show changes the page; esc goes back from it.
func (m *Model) show(v view) {
	if v != m.view {
		m.before, m.view, m.scroll = m.view, v, 0
	}
}

// open shows a page of one job: of the selected row, or of the job that is shown.
func (m *Model) open(v view) {
	if m.view == viewContainers {
		r := m.list.current()
		if r == nil {
			return
		}
		m.job, m.gone = *r.container, false
	}
	if m.job.Key != "" {
		m.show(v)
	}
}

func (m *Model) back() {
	to := viewContainers
	switch {
	case m.view == viewContainers:
		m.list.filter = ""
		m.list.arrange()
		return
	case m.view == viewHelp, m.view == viewExplain && m.before == viewJob:
		to = m.before
	}
	m.view, m.before, m.scroll = to, viewContainers, 0
}

// move moves the selection, or what is shown of a page.
func (m *Model) move(code tcell.Key) {
	page := max(m.rowsShown()-1, 1)
	by := map[tcell.Key]int{tcell.KeyUp: -1, tcell.KeyDown: 1, tcell.KeyPgUp: -page, tcell.KeyPgDn: page, tcell.KeyHome: -1 << 20, tcell.KeyEnd: 1 << 20}[code]
	if m.view == viewContainers {
		m.list.move(by)
		return
	}
	m.scrollBy(by)
}

// scrollBy scrolls by so many lines, within what the page has.
func (m *Model) scrollBy(by int) {
	if m.scroll = max(m.scroll+by, 0); m.scroll > 0 { // lines costs as much as a page
		m.scroll = min(m.scroll, max(m.lines()-m.rowsShown(), 0))
	}
}
