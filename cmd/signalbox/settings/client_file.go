package settings

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/server/file"
	"go.yaml.in/yaml/v3"
)

// ClientFile is the client's configuration: named contexts, one of them current.
type ClientFile struct {
	Current  string               `yaml:"current"`
	Contexts map[string]yaml.Node `yaml:"contexts"`

	Path   string `yaml:"-"`
	unread error  // why the user's own file could not be read
}

// clientFilePath is the file that was asked for, or the user's own; empty: the user has no
// configuration folder.
func clientFilePath(asked string) string {
	if asked != "" {
		return asked
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "signalbox", "client.yaml")
}

// ReadClientFile reads the file that was asked for, or the user's own, which need not exist. Nor
// need it be readable: in a container or below cron, HOME may be /dev/null or another user's.
func ReadClientFile(asked string) (f ClientFile, err error) {
	f.Path = clientFilePath(asked)
	b, err := file.Read(f.Path, MaxFile)
	switch {
	case asked == "" && err != nil:
		f.unread = err
		return f, nil
	case err != nil:
		return f, Errorf("cannot read the client's configuration file: %v", err)
	}
	return f, f.decode(b)
}

func (f *ClientFile) decode(b []byte) error {
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(f); err != nil && !errors.Is(err, io.EOF) {
		return Errorf("%s is not a client configuration: %v", f.Path, err)
	}
	return nil
}

// Names are the names of the contexts, in order.
func (f *ClientFile) Names() []string { return slices.Sorted(maps.Keys(f.Contexts)) }

// Settings are those of a context, by flag; of the current one if name is empty.
func (f *ClientFile) Settings(name string) (map[string]string, error) {
	name = cmp.Or(name, f.Current)
	if name == "" {
		return nil, nil
	}
	n, ok := f.Contexts[name]
	if !ok && f.unread != nil && !errors.Is(f.unread, os.ErrNotExist) {
		return nil, Errorf("there is no context %q: cannot read the client's configuration file: %v", name, f.unread)
	}
	if !ok {
		names := cmp.Or(strings.Join(f.Names(), ", "), "none")
		return nil, Errorf("%s has no context %q; it has: %s; make it with `signalbox context set %s --endpoints HOST:PORT`",
			f.Path, name, names, name)
	}
	return ReadKeys(f.Path, &n, Client)
}

// EditClientFile changes the mapping that the file holds; the file need not exist. Comments and all
// else in the file stay. A symbolic link stays too: its target is replaced. Of two changes at
// the same time one may get lost.
func EditClientFile(asked string, edit func(path string, root *yaml.Node) error) error {
	path := clientFilePath(asked)
	if path == "" {
		return Errorf("this user has no configuration folder; name a file with --client-config")
	}
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	b, err := file.Read(path, MaxFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Errorf("cannot read the client's configuration file: %v", err)
	}
	if err := (&ClientFile{Path: path}).decode(b); err != nil {
		return err
	}
	var doc, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(b))
	_ = d.Decode(&doc) // as above
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		return Errorf("%s has several YAML documents; leave one", path)
	}
	var out bytes.Buffer
	if doc.Kind == 0 { // empty, or comments alone, which are in no node
		doc = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
		out.WriteString(strings.TrimRight(string(b), "\n"))
		if out.Len() > 0 {
			out.WriteByte('\n')
		}
	}
	if !MakeMapping(doc.Content[0]) {
		return Errorf("%s is not a client configuration", path)
	}
	if err := edit(path, doc.Content[0]); err != nil {
		return err
	}
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(&doc), e.Close()); err != nil {
		return err
	}
	if err := (&ClientFile{Path: path}).decode(out.Bytes()); err != nil { // such as an alias of a deleted value
		return Errorf("%v; edit it by hand", err)
	}
	if asked == "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
	}
	return file.Write(path, out.Bytes())
}

// MakeMapping makes a mapping of a node without a value. False: it has another one.
func MakeMapping(n *yaml.Node) bool {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		n.Kind, n.Tag, n.Value = yaml.MappingNode, "", ""
	}
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		n.Style = 0 // {} would keep all that comes on its line
	}
	return n.Kind == yaml.MappingNode
}

// MapValue is the value of a key in a mapping, which is added if it is missing and add is set.
func MapValue(m *yaml.Node, key string, add bool) *yaml.Node {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return m.Content[i+1]
		}
	}
	if !add {
		return nil
	}
	k, v := new(yaml.Node), &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
	k.SetString(key)
	m.Content = append(m.Content, k, v)
	return v
}

// DeleteKey reports whether a mapping had the key.
func DeleteKey(m *yaml.Node, key string) bool {
	for i := 0; m != nil && i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			m.Content = slices.Delete(m.Content, i, i+2)
			return true
		}
	}
	return false
}
