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

// pointsMax is up to how many points of a line are marked.
const pointsMax = 12

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

// drawing is an SVG document that is being written.
type drawing struct {
	strings.Builder
	axes
}

// svg draws the chart.
func (c chart) svg() string {
	d := &drawing{axes: c.axes()}
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" font-family="sans-serif" font-size="12" fill="#222">`,
		chartWidth, chartHeight, chartWidth, chartHeight)
	d.add("<title>%s</title>", html.EscapeString(c.Title))
	d.add(`<rect width="100%%" height="100%%" fill="#fff"/>`)
	d.text(chartLeft, chartTop-16, "start", c.Title)
	for _, b := range c.Bands {
		d.add(`<rect x="%.1f" y="%d" width="%.1f" height="%.1f" fill="#f2e6c8"/>`, d.x(b.From), chartTop, d.x(b.To)-d.x(b.From), plotHeight)
		d.text(d.x(b.From)+4, chartTop+14, "start", b.Name)
	}
	d.grid(c)
	for i, l := range c.Lines {
		d.line(l, colours[i%len(colours)], float64(chartTop+10+20*i))
	}
	d.add("</svg>")
	return d.String()
}

func (d *drawing) add(format string, arguments ...any) { fmt.Fprintf(d, format+"\n", arguments...) }

func (d *drawing) text(x, y float64, anchor, s string) {
	d.add(`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, html.EscapeString(s))
}

// grid draws what the lines are read against.
func (d *drawing) grid(c chart) {
	for y, step := 0.0, niceStep(d.yMax); y <= d.yMax*1.0001; y += step {
		d.add(`<line x1="%d" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#ddd"/>`, chartLeft, d.y(y), chartLeft+plotWidth, d.y(y))
		d.text(chartLeft-8, d.y(y)+4, "end", fmt.Sprintf("%.6g", y))
	}
	for _, t := range c.Ticks {
		d.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#222"/>`, d.x(t.X), d.y(0), d.x(t.X), d.y(0)+5)
		d.text(d.x(t.X), d.y(0)+18, "middle", t.Label)
	}
	d.text(chartLeft+plotWidth/2, chartHeight-14, "middle", c.XLabel)
	d.add(`<text transform="translate(16 %.1f) rotate(-90)" text-anchor="middle">%s</text>`, chartTop+plotHeight/2, html.EscapeString(c.YLabel))
}

// line draws a line, its points when they are few, and its entry in the legend.
func (d *drawing) line(l line, colour string, legend float64) {
	places := make([]string, 0, len(l.Points))
	for _, p := range l.Points {
		places = append(places, fmt.Sprintf("%.1f,%.1f", d.x(p.X), d.y(p.Y)))
		if len(l.Points) <= pointsMax {
			d.add(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, d.x(p.X), d.y(p.Y), colour)
		}
	}
	left := chartLeft + plotWidth + 14
	for _, stroke := range []string{strings.Join(places, " "), fmt.Sprintf("%.1f,%.1f %.1f,%.1f", left, legend, left+24, legend)} {
		dashes := ""
		if l.Dashed {
			dashes = ` stroke-dasharray="5 4"`
		}
		d.add(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2"%s/>`, stroke, colour, dashes)
	}
	d.text(left+30, legend+4, "start", l.Name)
}

func (c chart) write(path string) error {
	return os.WriteFile(path, []byte(c.svg()), 0o644)
}
