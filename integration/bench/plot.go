package main

import (
	"bytes"
	"fmt"
	"html"
	"text/template"
)

// A plot is a bar for each system and number of clients, as long as the median, with
// a line from the least round to the best. It is drawn by hand, for a plotting
// library would bring along more code than this file has.
const (
	plotWidth  = 860
	plotNames  = 190 // for the names, left of the bars
	plotValues = 110 // for the values, right of them
	barHeight  = 16
	barStep    = 22
	panelHead  = 34
	plotHead   = 40
)

type plotPanel struct {
	Y     int
	Title string
	Bars  []plotBar
}

type plotBar struct {
	Y, Width, Low, High int
	Name, Value, Colour string
}

var plotTemplate = template.Must(template.New("plot").Funcs(template.FuncMap{
	"text": html.EscapeString, "add": func(a, b int) int { return a + b },
}).Parse(`<svg xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="{{.Height}}" viewBox="0 0 {{.Width}} {{.Height}}" font-family="system-ui, sans-serif" font-size="12" fill="#1f2328">
<title>{{text .Title}}</title>
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="12" y="24" font-size="15" font-weight="600">{{text .Title}}</text>
{{range .Panels}}<text x="12" y="{{.Y}}" font-weight="600">{{text .Title}}</text>
{{range .Bars}}<text x="{{$.Left}}" y="{{add .Y 12}}" text-anchor="end" dx="-8">{{text .Name}}</text>
<rect x="{{$.Left}}" y="{{.Y}}" width="{{.Width}}" height="{{$.Bar}}" fill="{{.Colour}}"/>
<path d="M{{.Low}} {{add .Y 8}}H{{.High}}M{{.Low}} {{add .Y 4}}v8M{{.High}} {{add .Y 4}}v8" stroke="#1f2328" fill="none"/>
<text x="{{add .High 6}}" y="{{add .Y 12}}">{{text .Value}}</text>
{{end}}{{end}}</svg>
`))

// plot draws the throughput of the systems, a panel for each number of clients.
func (r *report) plot(title string, columns []*measured) []byte {
	y := plotHead
	var panels []plotPanel
	for _, m := range columns {
		panel := plotPanel{Y: y + 18, Title: plural(m.clients, "client") + ": operations per second"}
		if m.scenario == bursts {
			panel.Title = plural(m.clients, "client") + ": bursts per second"
		}
		y += panelHead
		most := 0.0
		for _, s := range m.series {
			most = max(most, spreadOf(s.perSecond).high)
		}
		scale := (plotWidth - plotNames - plotValues) / most
		for _, name := range r.order {
			if m.series[name] == nil {
				continue
			}
			s := spreadOf(m.series[name].perSecond)
			panel.Bars = append(panel.Bars, plotBar{
				Y: y, Width: int(s.median * scale), Low: plotNames + int(s.low*scale), High: plotNames + int(s.high*scale),
				Name: name, Value: grouped(s.median), Colour: colours[r.roles[name]],
			})
			y += barStep
		}
		panels = append(panels, panel)
	}
	var svg bytes.Buffer
	err := plotTemplate.Execute(&svg, map[string]any{
		"Width": plotWidth, "Height": y + 12, "Title": title, "Panels": panels, "Left": plotNames, "Bar": barHeight,
	})
	if err != nil {
		panic(fmt.Sprintf("bench: draw %s: %v", title, err)) // the template does not fit its data
	}
	return svg.Bytes()
}

// colours tell idempg, its peers and the floors apart.
var colours = map[role]string{ours: "#1a7f37", peer: "#6ea8dc", floor: "#afb8c1"}
