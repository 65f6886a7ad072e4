package desired

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Write is the document of objects: sorted, without defaults.
func Write(objects []*Object) ([]byte, error) {
	objects = slices.SortedFunc(slices.Values(objects), func(a, b *Object) int {
		if a.Kind == Right && b.Kind == Right { // an identity has its rights together
			return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Node, b.Node))
		}
		return compareKeys(a.Key, b.Key)
	})
	top, nodes, identities, trusts := new(mappingNode), new(mappingNode), new(mappingNode), new(mappingNode)
	top.add("signalbox", &yaml.Node{Kind: yaml.ScalarNode, Value: "1"})
	byPath, bySection := map[string]*mappingNode{}, map[Key]*mappingNode{}
	for _, o := range objects {
		switch o.Kind {
		case Node:
			n, settings := new(mappingNode), new(mappingNode)
			for _, s := range o.Settings {
				switch {
				case s.Default:
				case s.Key == tierKey:
					n.add(s.Key, s.Value.node())
				default:
					settings.add(s.Key, s.Value.node())
				}
			}
			if len(settings.Content) > 0 {
				n.add("settings", settings.node())
			}
			byPath[o.Node] = n
			nodes.add(o.Node, n.node())
		case Right:
			of, ok := bySection[Key{Kind: Right, Name: o.Name}]
			if !ok {
				of = new(mappingNode)
				bySection[Key{Kind: Right, Name: o.Name}] = of
				identities.add(o.Name, of.node())
			}
			of.add(o.Node, o.Settings[0].Value.node())
		case Trust:
			trusts.add(o.Name, o.body())
		default:
			section, ok := bySection[Key{Kind: o.Kind, Node: o.Node}]
			if !ok {
				section = new(mappingNode)
				bySection[Key{Kind: o.Kind, Node: o.Node}] = section
				byPath[o.Node].add(sections[o.Kind], section.node())
			}
			section.add(o.Name, o.body())
		}
	}
	for _, x := range []struct {
		key string
		n   *mappingNode
	}{{"nodes", nodes}, {"identities", identities}, {"trusts", trusts}} {
		if len(x.n.Content) > 0 {
			top.add(x.key, x.n.node())
		}
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(top.node()); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

// body is an object's settings and data.
func (o *Object) body() *yaml.Node {
	n := new(mappingNode)
	for _, s := range o.Settings {
		if !s.Default {
			n.add(s.Key, s.Value.node())
		}
	}
	switch {
	case !o.HasData || o.Kind == Semaphore && len(o.Data) == 0:
	case utf8.Valid(o.Data):
		n.add("data", textNode(string(o.Data)))
	default:
		n.add("data-base64", &yaml.Node{Kind: yaml.ScalarNode, Value: base64.StdEncoding.EncodeToString(o.Data)})
	}
	return n.node()
}

type mappingNode yaml.Node

func (n *mappingNode) add(key string, v *yaml.Node) {
	n.Content = append(n.Content, textNode(key), v)
}

func (n *mappingNode) node() *yaml.Node {
	n.Kind = yaml.MappingNode
	return (*yaml.Node)(n)
}
