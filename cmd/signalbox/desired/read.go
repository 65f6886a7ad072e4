package desired

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Entry is a key of a mapping, with its value.
type Entry struct {
	Key   string
	At    Position // of the key
	Value *yaml.Node
}

// File is the text of a document.
type File struct {
	Name string // for errors
	Text []byte
}

// Form reads the settings of an object of a kind, and checks them and its name. What it reads goes
// into Settings, Config, and Data where the kind has data.
type Form func(o *Object, settings []Entry) error

// Forms are those of the kinds that have settings.
type Forms map[Kind]Form

// Read reads documents, which are one together.
func Read(files []File, forms Forms) (*Document, error) {
	r := &reader{forms: forms, d: &Document{Identities: map[string]Position{}}}
	size := 0
	for _, f := range files {
		if size += len(f.Text); size > MaxBytes {
			return nil, Position{File: f.Name}.Errorf("the documents have more than %d bytes; apply them in parts", MaxBytes)
		}
	}
	for _, f := range files {
		if err := r.file(f); err != nil {
			return nil, err
		}
	}
	return r.d, r.d.check()
}

type reader struct {
	forms Forms
	d     *Document
	name  string // of the file
	read  int    // objects
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func (r *reader) file(f File) error {
	r.name = f.Name
	decoder := yaml.NewDecoder(bytes.NewReader(f.Text))
	for n := 0; ; n++ {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		switch {
		case errors.Is(err, io.EOF) && n > 0:
			return nil
		case errors.Is(err, io.EOF):
			return Position{File: f.Name}.Errorf("it is empty; begin with signalbox: 1")
		case err != nil:
			at := Position{File: f.Name}
			if m := yamlLine.FindStringSubmatch(err.Error()); m != nil && m[1] != "" {
				at.Line, _ = strconv.Atoi(m[1])
				at.Column = 1
			}
			return at.Errorf("it is not valid YAML: %s", yamlLine.ReplaceAllString(err.Error(), ""))
		}
		if err := r.document(doc.Content[0]); err != nil {
			return err
		}
	}
}

// document reads the top of a document.
func (r *reader) document(n *yaml.Node) error {
	entries, err := r.mapping(n, "a document")
	if err != nil {
		return err
	}
	version := slices.IndexFunc(entries, func(e Entry) bool { return e.Key == "signalbox" })
	if version < 0 {
		return r.at(n).Errorf("the format is missing; begin with signalbox: 1")
	}
	if text, err := r.text(entries[version].Value); err != nil || text != "1" {
		return r.at(entries[version].Value).Errorf("the format of the document is not known here; it must be signalbox: 1")
	}
	for _, e := range entries {
		switch e.Key {
		case "signalbox":
		case "nodes":
			err = r.nodes(e.Value)
		case "identities":
			err = r.identities(e.Value)
		case "trusts":
			err = r.trusts(e.Value)
		case "absent":
			err = r.names(e.Value, "paths of nodes", func(at Position, path string) error {
				return r.absent(at, Key{Kind: Node, Node: path})
			})
		default:
			err = unknown(e, "a document", "signalbox, nodes, identities, trusts, absent")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func unknown(e Entry, what, keys string) error {
	return e.At.Errorf("unknown key %q; %s has %s", e.Key, what, keys)
}

func (r *reader) nodes(n *yaml.Node) error {
	entries, err := r.mapping(n, "nodes")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := protocol.ValidatePath(e.Key); err != nil {
			return e.At.Errorf("%s", refusal(err))
		}
		parts, err := r.mapping(e.Value, "a node")
		if err != nil {
			return err
		}
		var settings []Entry
		for _, p := range parts {
			kind := slices.Index(sections[:], p.Key)
			switch {
			case p.Key == "settings":
				list, err := r.mapping(p.Value, "settings")
				if err != nil {
					return err
				}
				for _, x := range list {
					if x.Key == tierKey {
						return x.At.Errorf("unknown key %q; it is beside settings, as a node keeps its tier", x.Key)
					}
				}
				settings = append(settings, list...)
			case p.Key == tierKey:
				settings = append(settings, p)
			case p.Key == "absent":
				err = r.absentOf(e.Key, p.Value)
			case kind > 0 && p.Key != "":
				err = r.objects(Kind(kind), e.Key, p.Value)
			default:
				err = unknown(p, "a node", "tier, settings, semaphores, configs, limits, rollouts, absent")
			}
			if err != nil {
				return err
			}
		}
		if err := r.object(Key{Kind: Node, Node: e.Key}, e.At, settings); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) objects(kind Kind, node string, n *yaml.Node) error {
	entries, err := r.mapping(n, sections[kind])
	if err != nil {
		return err
	}
	for _, e := range entries {
		settings, err := r.mapping(e.Value, "a "+kind.String())
		if err != nil {
			return err
		}
		if err := r.object(Key{kind, node, e.Key}, e.At, settings); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) object(k Key, at Position, settings []Entry) error {
	if err := r.count(at); err != nil {
		return err
	}
	o := &Object{Key: k, At: at}
	if err := r.forms[k.Kind](o, settings); err != nil {
		if _, ok := errors.AsType[*Error](err); ok {
			return err
		}
		return at.Errorf("%s: %s", k, refusal(err))
	}
	r.d.Objects = append(r.d.Objects, o)
	return nil
}

// refusal is a refusal without the word of its status.
func refusal(err error) string {
	if x, ok := errors.AsType[*protocol.Error](err); ok {
		return x.Message
	}
	return err.Error()
}

func (r *reader) count(at Position) error {
	if r.read++; r.read > MaxObjects {
		return at.Errorf("this is object %d; at most %d are allowed, so apply them in parts", r.read, MaxObjects)
	}
	return nil
}

func (r *reader) absentOf(node string, n *yaml.Node) error {
	entries, err := r.mapping(n, "absent")
	if err != nil {
		return err
	}
	for _, e := range entries {
		kind := slices.Index(sections[:], e.Key)
		if kind <= 0 || e.Key == "" {
			return unknown(e, "absent of a node", "semaphores, configs, limits, rollouts")
		}
		err := r.names(e.Value, "names", func(at Position, name string) error {
			return r.absent(at, Key{Kind(kind), node, name})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) absent(at Position, k Key) error {
	var err error
	switch name := []byte(k.Name); k.Kind {
	case Node:
		err = protocol.ValidatePath(k.Node)
	case Limit:
		err = protocol.ValidateLimitPath(name)
	default:
		if len(name) == 0 || len(name) > protocol.MaxNameLen {
			return at.Errorf("name of a %s is %d bytes long; it must be 1 to %d", k.Kind, len(name),
				protocol.MaxNameLen)
		}
	}
	if err != nil {
		return at.Errorf("%s", refusal(err))
	}
	if k.Kind == Semaphore && strings.HasPrefix(k.Name, protocol.ConfigPrefix) {
		return at.Errorf("semaphore %q is a configuration; name %q under configs", k.Name,
			strings.TrimPrefix(k.Name, protocol.ConfigPrefix))
	}
	r.d.Absent = append(r.d.Absent, Named{k, at})
	return r.count(at)
}

// maxIdentity is the longest identity in bytes.
const maxIdentity = 255

var rightWords = []string{"none", "read", "use", "admin"}

func (r *reader) identities(n *yaml.Node) error {
	entries, err := r.mapping(n, "identities")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Key == "" || len(e.Key) > maxIdentity {
			return e.At.Errorf("identity is %d bytes long; it must be 1 to %d", len(e.Key), maxIdentity)
		}
		if first, ok := r.d.Identities[e.Key]; ok {
			return e.At.Errorf("identity %s is named twice, first at %s; keep one", e.Key, first)
		}
		r.d.Identities[e.Key] = e.At
		if err := r.count(e.At); err != nil {
			return err
		}
		rights, err := r.mapping(e.Value, "an identity")
		if err != nil {
			return err
		}
		for _, x := range rights {
			if err := protocol.ValidatePath(x.Key); err != nil && x.Key != "/" {
				return x.At.Errorf("%s", refusal(err))
			}
			word, err := r.text(x.Value)
			if err != nil || !slices.Contains(rightWords, word) {
				return r.at(x.Value).Errorf("right %q is unknown; choose read, use, admin or none", word)
			}
			if err := r.count(x.At); err != nil {
				return err
			}
			r.d.Objects = append(r.d.Objects, RightObject(e.Key, x.Key, word, x.At))
		}
	}
	return nil
}

// trusts reads trusts; one without settings is to go.
func (r *reader) trusts(n *yaml.Node) error {
	entries, err := r.mapping(n, "trusts")
	if err != nil {
		return err
	}
	for _, e := range entries {
		settings, err := r.mapping(e.Value, "a trust")
		k := Key{Kind: Trust, Name: e.Key}
		switch {
		case err != nil:
		case len(settings) > 0:
			err = r.object(k, e.At, settings)
		default:
			r.d.Absent = append(r.d.Absent, Named{k, e.At})
			err = r.count(e.At)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// RightObject is a right of an identity.
func RightObject(identity, path, right string, at Position) *Object {
	return &Object{Key: Key{Right, path, identity}, At: at, Settings: []Setting{{Key: "right", Value: Word(right)}}}
}

// names reads a list of names.
func (r *reader) names(n *yaml.Node, what string, add func(at Position, name string) error) error {
	n = resolved(n)
	if n.Kind != yaml.SequenceNode {
		return r.at(n).Errorf("absent has a list of %s, such as [a, b]", what)
	}
	for _, x := range n.Content {
		name, err := r.text(x)
		if err != nil {
			return err
		}
		if err := add(r.at(x), name); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) at(n *yaml.Node) Position { return Position{r.name, n.Line, n.Column} }

// resolved is the node that an alias stands for.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// mapping is the entries of a mapping; none if there is no value.
func (r *reader) mapping(n *yaml.Node, what string) ([]Entry, error) { return mapping(r.name, n, what) }

func mapping(file string, n *yaml.Node, what string) ([]Entry, error) {
	n = resolved(n)
	at := Position{file, n.Line, n.Column}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil, nil
	}
	if n.Kind != yaml.MappingNode {
		return nil, at.Errorf("%s has keys and values, such as {key: value}", what)
	}
	first := make(map[string]int, len(n.Content)/2)
	entries := make([]Entry, 0, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		e := Entry{At: Position{file, k.Line, k.Column}, Value: n.Content[i+1]}
		var err error
		if e.Key, err = text(e.At, k); err != nil {
			return nil, err
		}
		if line, twice := first[e.Key]; twice {
			return nil, e.At.Errorf("key %q is given twice, first in line %d; keep one", e.Key, line)
		}
		first[e.Key] = k.Line
		entries = append(entries, e)
	}
	return entries, nil
}

func (r *reader) text(n *yaml.Node) (string, error) { return text(r.at(n), n) }

// text is a scalar as it is written.
func text(at Position, n *yaml.Node) (string, error) {
	n = resolved(n)
	switch {
	case n.Kind != yaml.ScalarNode:
		return "", at.Errorf("a single value is expected here, and no list or mapping")
	case n.Tag == "!!null":
		return "", at.Errorf("the value is missing; leave the key out for the default")
	case n.Tag == "!!binary":
		b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(n.Value), ""))
		if err != nil {
			return "", at.Errorf("the value is not base64")
		}
		return string(b), nil
	}
	return n.Value, nil
}

// ValueAt is the place of the value.
func (e Entry) ValueAt() Position { return Position{e.At.File, e.Value.Line, e.Value.Column} }

// Text is the value, which has to be a single one.
func (e Entry) Text() (string, error) { return text(e.ValueAt(), e.Value) }

// Entries are those of the value, which has to be a mapping.
func (e Entry) Entries(what string) ([]Entry, error) { return mapping(e.At.File, e.Value, what) }

// IsMap reports whether the value is a mapping.
func (e Entry) IsMap() bool { return resolved(e.Value).Kind == yaml.MappingNode }

// Items are those of a list, with the key of the whole; of another value it alone.
func (e Entry) Items() (items []Entry) {
	n := resolved(e.Value)
	if n.Kind != yaml.SequenceNode {
		return []Entry{e}
	}
	for _, x := range n.Content {
		items = append(items, Entry{Key: e.Key, At: e.At, Value: x})
	}
	return items
}
