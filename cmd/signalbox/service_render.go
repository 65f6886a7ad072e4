package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"text/template"

	"github.com/signalbox-dev/signalbox/client/discovery"
)

func renderJSON(v *discovery.View) ([]byte, error) {
	list := []json.RawMessage{}
	for _, e := range v.Used {
		data, err := e.Data()
		if err != nil {
			return nil, err
		}
		list = append(list, data)
	}
	return indented(list)
}

func indented(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

func renderAddresses(v *discovery.View) ([]byte, error) {
	var b bytes.Buffer
	for _, e := range v.Used {
		b.WriteString(e.Addr + "\n")
	}
	return b.Bytes(), nil
}

// renderPrometheus writes targets for Prometheus' file_sd. Its labels are for relabelling.
func renderPrometheus(v *discovery.View) ([]byte, error) {
	type target struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	list := []target{}
	for _, e := range v.Used {
		labels := map[string]string{
			"__meta_signalbox_zone": e.Zone, "__meta_signalbox_state": string(e.State),
			"__meta_signalbox_weight": fmt.Sprint(e.Weight),
		}
		for _, key := range slices.Sorted(maps.Keys(e.Meta)) { // in order: two keys may be one label
			labels["__meta_signalbox_meta_"+labelName(key)] = e.Meta[key]
		}
		list = append(list, target{[]string{e.Addr}, labels})
	}
	return indented(list)
}

// labelName replaces the characters that a label of Prometheus may not have.
func labelName(key string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, key)
}

// renderTemplate reads a template.
func renderTemplate(text, service, zone string) (func(*discovery.View) ([]byte, error), error) {
	t, err := template.New("file").Option("missingkey=zero").Funcs(template.FuncMap{
		"json": func(v any) (string, error) { b, err := json.Marshal(v); return string(b), err },
		"host": func(addr string) (string, error) { host, _, err := net.SplitHostPort(addr); return host, err },
		"port": func(addr string) (string, error) { _, port, err := net.SplitHostPort(addr); return port, err },
	}).Parse(text)
	if err != nil {
		return nil, err
	}
	return func(v *discovery.View) ([]byte, error) {
		var b bytes.Buffer
		err := t.Execute(&b, struct {
			Service, Zone string
			Endpoints     []*discovery.Endpoint
		}{service, zone, v.Used})
		return b.Bytes(), err
	}, nil
}
