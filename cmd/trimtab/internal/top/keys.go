package top

import "unicode/utf8"

// Code is a key of a keyboard.
type Code uint8

// Codes; KeyRune is a key that writes a character.
const (
	KeyRune Code = iota
	KeyUp
	KeyDown
	KeyPageUp
	KeyPageDown
	KeyHome
	KeyEnd
	KeyEnter
	KeyEscape
	KeyBackspace
	KeyTab
	KeyInterrupt // ctrl-C
	KeySuspend   // ctrl-Z
	KeyRedraw    // ctrl-L
)

// Key is a key that was pressed.
type Key struct {
	Code Code
	Rune rune // of KeyRune
}

// maxFilter bounds what is typed, in characters.
const maxFilter = 64

func (m *Model) press(k Key) Action {
	switch k.Code {
	case KeyInterrupt:
		return ActionQuit
	case KeySuspend:
		return ActionSuspend
	case KeyRedraw:
		return ActionRedraw
	}
	if m.list.typing {
		m.typeFilter(k)
		return ActionNone
	}
	switch {
	case k.Code == KeyRune && k.Rune == 'q':
		return ActionQuit
	case k.Code == KeyRune && k.Rune == 'R':
		return ActionRefresh
	case k.Code == KeyRune:
		m.letter(k.Rune)
	case k.Code == KeyEscape || k.Code == KeyBackspace:
		m.back()
	case k.Code == KeyEnter && m.view == viewContainers:
		m.open(viewJob)
	case k.Code == KeyTab && m.view == viewContainers:
		m.show(viewDevices)
	case k.Code == KeyTab && m.view == viewDevices:
		m.show(viewContainers)
	default:
		m.move(k.Code)
	}
	return ActionNone
}

// letter does what a letter stands for.
func (m *Model) letter(r rune) {
	if code, moves := map[rune]Code{'j': KeyDown, 'k': KeyUp, ' ': KeyPageDown, 'g': KeyHome, 'G': KeyEnd}[r]; moves {
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
	case k.Code == KeyRune && utf8.RuneCountInString(l.filter) < maxFilter:
		r, _ := shown(k.Rune)
		l.filter += string(r)
	case k.Code == KeyBackspace && l.filter != "":
		_, size := utf8.DecodeLastRuneInString(l.filter)
		l.filter = l.filter[:len(l.filter)-size]
	case k.Code == KeyEscape:
		l.filter, l.typing = "", false
	case k.Code == KeyEnter:
		l.typing = false
	case k.Code != KeyRune && k.Code != KeyBackspace:
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
func (m *Model) move(code Code) {
	page := max(m.rowsShown()-1, 1)
	by := map[Code]int{KeyUp: -1, KeyDown: 1, KeyPageUp: -page, KeyPageDown: page, KeyHome: -1 << 20, KeyEnd: 1 << 20}[code]
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
