package settings

import (
	"errors"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/server/file"
	"go.yaml.in/yaml/v3"
)

// IsFileKey reports whether a configuration file may hold the key.
func IsFileKey(sc Scope, key string) bool {
	return slices.ContainsFunc(All, func(s Setting) bool { return s.Scope == sc && s.Flag == key }) &&
		key != "config" && key != "client-config" && key != "context"
}

// MaxFile is the longest configuration file, of a server or a client, in bytes.
const MaxFile = 1 << 20

func ReadServeFile(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	b, err := file.Read(path, MaxFile) // a device or a log given by mistake may have no end
	if err != nil {
		return nil, Errorf("cannot read the configuration file: %v", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return nil, Errorf("%s is not valid YAML: %v", path, err)
	}
	if len(doc.Content) == 0 {
		return map[string]string{}, nil
	}
	return ReadKeys(path, doc.Content[0], Serve)
}

// ReadKeys reads a mapping of scalars. It rejects unknown and duplicate keys, with their line.
func ReadKeys(path string, n *yaml.Node, sc Scope) (map[string]string, error) {
	if n.Kind != yaml.MappingNode {
		return nil, Errorf("%s:%d: expected keys and values, one setting a line", path, n.Line)
	}
	out := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if !IsFileKey(sc, k.Value) {
			return nil, Errorf("%s:%d: unknown key %q; the keys are the names of the flags without dashes in front", path,
				k.Line, k.Value)
		}
		if _, twice := out[k.Value]; twice {
			return nil, Errorf("%s:%d: key %q is given twice; keep one", path, k.Line, k.Value)
		}
		text, err := readValue(sc, k.Value, v)
		if err != nil {
			return nil, Errorf("%s:%d: key %q wants %v", path, v.Line, k.Value, err)
		}
		out[k.Value] = text
	}
	return out, nil
}

// readValue reads a scalar; for a setting that is a list, also a sequence of them, or a mapping as
// KEY=VALUE.
func readValue(sc Scope, key string, v *yaml.Node) (string, error) {
	if v.Kind == yaml.ScalarNode {
		return v.Value, nil
	}
	list := slices.ContainsFunc(All, func(s Setting) bool { return s.Scope == sc && s.Flag == key && s.List })
	if !list {
		return "", errors.New("a single value")
	}
	var parts []string
	for i, n := range v.Content {
		if n.Kind != yaml.ScalarNode {
			return "", errors.New("a value, or a list of values")
		}
		if v.Kind == yaml.MappingNode && i%2 == 1 {
			parts[len(parts)-1] += "=" + n.Value
			continue
		}
		parts = append(parts, n.Value)
	}
	return strings.Join(parts, ","), nil
}
