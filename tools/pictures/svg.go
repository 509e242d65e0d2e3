package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Of the pictures, in pixels.
const (
	width      = 760
	left       = 56
	right      = 600 // what is right of it names the lines
	top        = 44
	panelGap   = 34
	panelHigh  = 96
	lineHigh   = 16
	underAxis  = 28
	margin     = 10
	nameColumn = right + 10
)

// style serves light and dark alike: a browser chooses by what its user wants. Lines differ in
// dashes too, for who does not tell colours.
const style = `
  svg { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --grid: #d1d9e0; --one: #0969da; --two: #9a3412; --lent: #0969da; --paper: #ffffff; }
  @media (prefers-color-scheme: dark) { svg { --ink: #f0f6fc; --soft: #9198a1; --grid: #3d444d; --one: #58a6ff; --two: #f0883e; --lent: #58a6ff; --paper: #0d1117; } }
  text { font: 12px system-ui, sans-serif; fill: var(--ink); }
  .title { font-weight: 600; font-size: 14px; }
  .soft { fill: var(--soft); }
  .paper { fill: var(--paper); }
  .grid { stroke: var(--grid); fill: none; }
  .one { stroke: var(--one); fill: none; stroke-width: 2; }
  .two { stroke: var(--two); fill: none; stroke-width: 2; stroke-dasharray: 6 3; }
  .owner { stroke: var(--soft); fill: none; stroke-width: 1.5; stroke-dasharray: 2 3; }
  .lent { fill: var(--lent); fill-opacity: 0.16; stroke: none; }
  .mark { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 1 3; }
  .a { fill: var(--one); } .b { fill: var(--two); } .c { fill: var(--soft); } .d { fill: var(--grid); }
  .fill-one { fill: var(--one); } .fill-two { fill: var(--two); }
`

type point struct {
	x, y  float64
	known bool
}

type span struct{ from, to float64 }

// canvas collects the picture's elements, from top to bottom.
type canvas struct {
	out  strings.Builder
	y    float64 // where what is next begins
	most float64 // seconds at the right edge
}

func newCanvas(title string, seconds float64) *canvas {
	c := &canvas{y: top, most: seconds}
	c.text(left, 24, "title", title)
	return c
}

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(&c.out, format+"\n", args...) }

func (c *canvas) text(x, y float64, class, text string) {
	c.add(`<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, html.EscapeString(text))
}

func (c *canvas) end(x, y float64, class, text string) {
	c.add(`<text x="%.1f" y="%.1f" class="%s" text-anchor="end">%s</text>`, x, y, class, html.EscapeString(text))
}

func (c *canvas) x(seconds float64) float64 { return left + (right-left)*seconds/c.most }

// svg ends the picture. Screen readers read title and description.
func (c *canvas) svg(title, description string) string {
	high := int(c.y + margin)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title description">
<title id="title">%s</title>
<desc id="description">%s</desc>
<style>%s</style>
<rect class="paper" width="%d" height="%d"/>
%s</svg>
`, width, high, width, high, html.EscapeString(title), html.EscapeString(description), style, width, high, c.out.String())
}

// panel is one figure over time; its axis goes from zero to most.
type panel struct {
	c       *canvas
	y, most float64
	named   int // names that stand at its right
}

func (c *canvas) panel(title string, most float64) *panel {
	p := &panel{c: c, y: c.y + lineHigh, most: niceTop(most)}
	c.text(left, c.y+4, "soft", title)
	for i := range 3 {
		v := p.most * float64(i) / 2
		c.add(`<path class="grid" d="M%d %.1fH%d"/>`, left, p.at(v), right)
		c.end(left-6, p.at(v)+4, "soft", fmt.Sprintf("%.3g", v))
	}
	c.y = p.y + panelHigh + panelGap
	return p
}

func (p *panel) at(v float64) float64 { return p.y + panelHigh*(1-min(v, p.most)/p.most) }

// niceTop is the first of 1, 2, 4, 5 times a power of ten that is not below v.
func niceTop(v float64) float64 {
	for power := math.Pow(10, math.Floor(math.Log10(max(v, 1e-3)))); ; power *= 10 {
		for _, n := range []float64{1, 2, 4, 5} {
			if n*power >= v*(1-1e-9) {
				return n * power
			}
		}
	}
}

// line draws points; stepped: a value holds until the next.
func (p *panel) line(class, name string, points []point, stepped bool) {
	var d strings.Builder
	drawn := false
	for _, at := range points {
		x, y := p.c.x(at.x), p.at(at.y)
		switch {
		case !at.known:
		case !drawn:
			fmt.Fprintf(&d, "M%.1f %.1f", x, y)
		case stepped:
			fmt.Fprintf(&d, "H%.1fV%.1f", x, y)
		default:
			fmt.Fprintf(&d, "L%.1f %.1f", x, y)
		}
		drawn = at.known
	}
	p.c.add(`<path class="%s" d="%s"/>`, class, d.String())
	p.name(class, name)
}

// name adds a line to the panel's key.
func (p *panel) name(class, text string) {
	y := p.y + 8 + float64(p.named)*lineHigh
	p.named++
	if class == "lent" {
		p.c.add(`<rect class="lent" x="%d" y="%.1f" width="22" height="10"/>`, nameColumn, y-5)
	} else {
		p.c.add(`<path class="%s" d="M%d %.1fh22"/>`, class, nameColumn, y)
	}
	p.c.text(nameColumn+28, y+4, "soft", text)
}

// area fills between two figures.
func (p *panel) area(low, high []point) {
	var d strings.Builder
	for i := 0; i+1 < len(high); i++ {
		if high[i].y <= low[i].y {
			continue
		}
		fmt.Fprintf(&d, "M%.1f %.1fH%.1fV%.1fH%.1fZ", p.c.x(high[i].x), p.at(high[i].y), p.c.x(high[i+1].x), p.at(low[i].y), p.c.x(high[i].x))
	}
	p.c.add(`<path class="lent" d="%s"/>`, d.String())
}

// shade marks stretches over the whole height.
func (p *panel) shade(spans []span) {
	for _, s := range spans {
		p.c.add(`<rect class="lent" x="%.1f" y="%.1f" width="%.1f" height="%d"/>`, p.c.x(s.from), p.y, p.c.x(s.to)-p.c.x(s.from), panelHigh)
	}
}

// axis names seconds below the last panel, and ends it: events come before.
func (c *canvas) axis() {
	y := c.y - panelGap
	step := niceTop(c.most / 8)
	for i := 0; float64(i)*step <= c.most; i++ {
		v := float64(i) * step
		c.add(`<path class="grid" d="M%.1f %.1fv5"/>`, c.x(v), y)
		c.add(`<text x="%.1f" y="%.1f" class="soft" text-anchor="middle">%g s</text>`, c.x(v), y+18, v)
	}
	c.y = y + underAxis
}

// event is a vertical line from the first panel to the last, with a word above.
func (c *canvas) event(seconds float64, word string, row int) {
	y := float64(top + 2 + row*lineHigh)
	c.add(`<path class="mark" d="M%.1f %.1fV%.1f"/>`, c.x(seconds), y+4, c.y-panelGap)
	c.add(`<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, c.x(seconds), y, html.EscapeString(word))
}
