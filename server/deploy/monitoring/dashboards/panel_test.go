package dashboards

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Units of panels, by Grafana's names.
const (
	unitNone    = "short"
	unitSeconds = "s"
	unitBytes   = "bytes"
	unitPerSec  = "ops"
	unitByteSec = "Bps"
	unitRatio   = "percentunit"
)

// panel is one panel of a dashboard.
type panel struct {
	title, help, unit string
	stat              bool // one number for each series, instead of a graph
	queries           []query
}

func graph(title, unit, help string, queries ...query) panel {
	return panel{title: title, unit: unit, help: help, queries: queries}
}

func stat(title, unit, help string, queries ...query) panel {
	p := graph(title, unit, help, queries...)
	p.stat = true
	return p
}

// row is a row of panels under a title.
type row struct {
	title  string
	panels []panel
}

// dashboard is a page of Grafana.
type dashboard struct {
	uid, title, about string
	nodes             bool // it can be narrowed down to coordination nodes
	rows              []row
}

// dashboards are the files of the dashboards, by name.
func dashboards() map[string][]byte {
	files := make(map[string][]byte)
	for _, d := range []dashboard{overview(), coordination(), cluster()} {
		files[d.uid+".json"] = d.encode()
	}
	return files
}

// expressions are the expressions of all panels, by dashboard, row and title. They have the
// dashboards' variables in them.
func expressions() map[string][]string {
	all := make(map[string][]string)
	for _, d := range []dashboard{overview(), coordination(), cluster()} {
		for _, r := range d.rows {
			for _, p := range r.panels {
				for _, q := range p.queries {
					name := d.uid + " / " + r.title + " / " + p.title
					all[name] = append(all[name], q.expr)
				}
			}
		}
	}
	return all
}

// Sizes of panels in Grafana's grid of 24 columns.
const (
	columns     = 24
	panelWidth  = 8
	panelHeight = 8
	statHeight  = 4
)

type object map[string]any

// encode writes the dashboard as Grafana imports it.
func (d dashboard) encode() []byte {
	var panels []object
	id, y := 0, 0
	for _, r := range d.rows {
		id++
		panels = append(panels, object{
			"id": id, "type": "row", "title": r.title, "collapsed": false, "panels": []object{},
			"gridPos": position(0, y, columns, 1),
		})
		y++
		x, tall := 0, 0
		for _, p := range r.panels {
			height := panelHeight
			if p.stat {
				height = statHeight
			}
			if x+panelWidth > columns {
				x, y, tall = 0, y+tall, 0
			}
			id++
			panels = append(panels, p.encode(id, position(x, y, panelWidth, height)))
			x, tall = x+panelWidth, max(tall, height)
		}
		y += tall
	}
	variables := []object{
		{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
		variable("instance", "Instance", "label_values(signalbox_ready, instance)"),
	}
	if d.nodes {
		variables = append(variables, variable("node", "Node", "label_values(signalbox_node_used, node)"))
	}
	text, err := json.MarshalIndent(object{
		"uid": d.uid, "title": d.title, "description": d.about, "tags": []string{"signalbox"},
		"schemaVersion": 39, "version": 1, "editable": true, "annotations": object{"list": []object{}},
		"refresh": "30s", "time": object{"from": "now-1h", "to": "now"}, "timezone": "browser", "graphTooltip": 1,
		"links": []object{{
			"type": "dashboards", "title": "signalbox", "tags": []string{"signalbox"},
			"asDropdown": true, "includeVars": true, "keepTime": true,
		}},
		"templating": object{"list": variables}, "panels": panels,
	}, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("dashboard %s: %v", d.uid, err)) // it is made of strings and numbers
	}
	return append(text, '\n')
}

func position(x, y, w, h int) object { return object{"x": x, "y": y, "w": w, "h": h} }

// source is the data source that the reader has chosen.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// variable lets the reader choose values of a label.
func variable(name, label, values string) object {
	return object{
		"name": name, "label": label, "type": "query", "datasource": source,
		"query": object{"query": values, "refId": name}, "definition": values,
		"multi": true, "includeAll": true, "allValue": ".*", "current": object{"text": "All", "value": "$__all"},
		"refresh": 2, "sort": 1,
	}
}

// encode writes the panel.
func (p panel) encode(id int, at object) object {
	var targets []object
	for i, q := range p.queries {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": source, "expr": q.expr, "legendFormat": q.legend,
			"range": !p.stat, "instant": p.stat,
		})
	}
	kind, defaults := "timeseries", object{
		"unit": p.unit, "min": 0,
		"custom": object{"fillOpacity": 10, "lineWidth": 1, "showPoints": "never", "spanNulls": false},
	}
	options := object{
		"legend": object{
			"displayMode": "table", "placement": "bottom", "calcs": []string{"lastNotNull", "max"}, "showLegend": true,
		},
		"tooltip": object{"mode": "multi", "sort": "desc"},
	}
	if p.stat {
		kind, defaults = "stat", object{"unit": p.unit}
		options = object{
			"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
			"textMode":      "value_and_name", "colorMode": "none", "graphMode": "none",
		}
	}
	return object{
		"id": id, "type": kind, "title": p.title, "description": p.help, "datasource": source,
		"gridPos": at, "targets": targets,
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}}, "options": options,
	}
}

// filled is an expression as Prometheus takes it: its variables stand for all instances and nodes,
// and for ten seconds.
func filled(expr string) string {
	return strings.NewReplacer(instanceVariable, ".*", nodeVariable, ".*", rateVariable, "10s").Replace(expr)
}
