package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"strings"
)

// chart is a line chart. Its X values are positions: what they mean is said by
// the ticks, so an axis may be logarithmic or have a place for zero.
type chart struct {
	Title, XLabel, YLabel string
	Ticks                 []tick
	Lines                 []line
	Bands                 []band
}

type tick struct {
	X     float64
	Label string
}

type line struct {
	Name   string
	Points []xy
	Dashed bool
}

type xy struct{ X, Y float64 }

// band is a stretch of the X axis with a name.
type band struct {
	Name     string
	From, To float64
}

const (
	chartWidth, chartHeight         = 760, 380
	chartLeft, chartRight           = 70, 230 // the right margin holds the legend
	chartTop, chartBottom           = 40, 55
	plotWidth               float64 = chartWidth - chartLeft - chartRight
	plotHeight              float64 = chartHeight - chartTop - chartBottom
)

// Colours that people with any colour vision tell apart (Okabe and Ito).
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// axes maps values to places on the drawing.
type axes struct{ xMin, xMax, yMax float64 }

func (c chart) axes() axes {
	a := axes{xMin: math.Inf(1), xMax: math.Inf(-1)}
	for _, l := range c.Lines {
		for _, p := range l.Points {
			a.xMin, a.xMax, a.yMax = min(a.xMin, p.X), max(a.xMax, p.X), max(a.yMax, p.Y)
		}
	}
	step := niceStep(a.yMax)
	a.yMax = step * math.Ceil(a.yMax/step)
	return a
}

func (a axes) x(x float64) float64 { return chartLeft + (x-a.xMin)/max(a.xMax-a.xMin, 1e-9)*plotWidth }
func (a axes) y(y float64) float64 { return chartTop + plotHeight - y/max(a.yMax, 1e-9)*plotHeight }

// niceStep is the distance between about five lines of a grid up to highest.
func niceStep(highest float64) float64 {
	if highest <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(highest/5)))
	for _, factor := range []float64{1, 2, 5} {
		if highest/(factor*power) <= 6 {
			return factor * power
		}
	}
	return 10 * power
}

// svg draws the chart.
func (c chart) svg() string {
	var b strings.Builder
	a := c.axes()
	text := func(x, y float64, anchor, s string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(s))
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" font-family="sans-serif" font-size="12" fill="#222">`+"\n",
		chartWidth, chartHeight, chartWidth, chartHeight)
	fmt.Fprintf(&b, "<title>%s</title>\n"+`<rect width="100%%" height="100%%" fill="#fff"/>`+"\n", html.EscapeString(c.Title))
	text(chartLeft, chartTop-16, "start", c.Title)
	for _, band := range c.Bands {
		fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%.1f" fill="#f2e6c8"/>`+"\n",
			a.x(band.From), chartTop, a.x(band.To)-a.x(band.From), plotHeight)
		text(a.x(band.From)+4, chartTop+14, "start", band.Name)
	}
	for y, step := 0.0, niceStep(a.yMax); y <= a.yMax*1.0001; y += step {
		fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#ddd"/>`+"\n", chartLeft, a.y(y), chartLeft+plotWidth, a.y(y))
		text(chartLeft-8, a.y(y)+4, "end", fmt.Sprintf("%.6g", y))
	}
	for _, t := range c.Ticks {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#222"/>`+"\n", a.x(t.X), a.y(0), a.x(t.X), a.y(0)+5)
		text(a.x(t.X), a.y(0)+18, "middle", t.Label)
	}
	text(chartLeft+plotWidth/2, chartHeight-14, "middle", c.XLabel)
	fmt.Fprintf(&b, `<text transform="translate(16 %.1f) rotate(-90)" text-anchor="middle">%s</text>`+"\n", chartTop+plotHeight/2, html.EscapeString(c.YLabel))
	for i, l := range c.Lines {
		l.draw(&b, a, colours[i%len(colours)])
		y := float64(chartTop + 10 + 20*i)
		line{Points: []xy{{0, 0}, {1, 0}}, Dashed: l.Dashed}.stroke(&b, colours[i%len(colours)],
			fmt.Sprintf("%.1f,%.1f %.1f,%.1f", chartLeft+plotWidth+14, y, chartLeft+plotWidth+38, y))
		text(chartLeft+plotWidth+44, y+4, "start", l.Name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// draw draws the line, and its points when they are few.
func (l line) draw(b *strings.Builder, a axes, colour string) {
	places := make([]string, 0, len(l.Points))
	for _, p := range l.Points {
		places = append(places, fmt.Sprintf("%.1f,%.1f", a.x(p.X), a.y(p.Y)))
		if len(l.Points) <= 12 {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", a.x(p.X), a.y(p.Y), colour)
		}
	}
	l.stroke(b, colour, strings.Join(places, " "))
}

func (l line) stroke(b *strings.Builder, colour, places string) {
	dashes := ""
	if l.Dashed {
		dashes = ` stroke-dasharray="5 4"`
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"%s/>`+"\n", places, colour, dashes)
}

func (c chart) write(path string) error {
	return os.WriteFile(path, []byte(c.svg()), 0o644)
}
