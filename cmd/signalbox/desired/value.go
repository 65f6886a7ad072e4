package desired

import (
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Value is a setting's value: a text, a list, or a map whose order counts.
type Value struct {
	form form
	text string
	list []Value
	keys []string // of a map, beside list
}

type form uint8

const (
	formWord form = iota // a number, a duration, a word of ours: YAML has it as it is
	formText             // anybody's text, which YAML may have to quote
	formList
	formMap
)

// Word is a number, a duration, or a word of an enumeration.
func Word(text string) Value { return Value{form: formWord, text: text} }

// Text is a name or another text that somebody chose.
func Text(text string) Value { return Value{form: formText, text: text} }

// List is a list.
func List(items ...Value) Value { return Value{form: formList, list: items} }

// Append is a list with another item.
func Append(v Value, item Value) Value { return List(append(v.list, item)...) }

// Texts is a list of texts.
func Texts(items []string) Value {
	v := Value{form: formList}
	for _, x := range items {
		v.list = append(v.list, Text(x))
	}
	return v
}

// Map is a map without entries.
func Map() Value { return Value{form: formMap} }

// Add adds an entry to a map.
func (v *Value) Add(key string, x Value) {
	v.form, v.keys, v.list = formMap, append(v.keys, key), append(v.list, x)
}

// String is the value on a line.
func (v Value) String() string {
	switch v.form {
	case formWord, formText:
		return v.text
	case formList:
		items := make([]string, len(v.list))
		for i := range v.list {
			items[i] = v.list[i].String()
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	items := make([]string, len(v.list))
	for i := range v.list {
		items[i] = v.keys[i] + ": " + v.list[i].String()
	}
	return "{" + strings.Join(items, ", ") + "}"
}

// equal reports whether two values are the same. Their texts on a line may be the same although the
// values differ, where a text has a comma.
func (v Value) equal(o Value) bool {
	if v.form >= formList || o.form >= formList {
		if v.form != o.form || len(v.list) != len(o.list) {
			return false
		}
	} else if v.text != o.text {
		return false
	}
	for i := range v.list {
		if v.form == formMap && v.keys[i] != o.keys[i] || !v.list[i].equal(o.list[i]) {
			return false
		}
	}
	return true
}

// get is the value of a key of a map.
func (v Value) get(key string) (Value, bool) {
	for i, k := range v.keys {
		if k == key {
			return v.list[i], true
		}
	}
	return Value{}, false
}

// names are those of a list of maps that have a name each; nil for anything else.
func (v Value) names() (names []string) {
	for _, x := range v.list {
		name, ok := x.get("name")
		if v.form != formList || !ok {
			return nil
		}
		names = append(names, name.text)
	}
	return names
}

// none is how a value is shown that is not there.
const none = "none"

// fields adds a line for each part in which two values of a setting differ.
func fields(to []Field, name string, from, now Value) []Field {
	if from.equal(now) {
		return to
	}
	if from.form == formMap && now.form == formMap {
		return partFields(to, name, from.keys, now.keys, from.get, now.get)
	}
	before, after := from.names(), now.names()
	if before == nil || after == nil || distinct(before) != len(before) || distinct(after) != len(after) {
		return append(to, Field{name, from.String(), now.String()})
	}
	if a, b := Texts(before), Texts(after); !a.equal(b) {
		to = append(to, Field{name, a.String(), b.String()})
	}
	of := func(v Value, names []string) func(string) (Value, bool) {
		return func(name string) (Value, bool) {
			for i, x := range names {
				if x == name {
					return v.list[i], true
				}
			}
			return Value{}, false
		}
	}
	return partFields(to, name, before, after, of(from, before), of(now, after))
}

// partFields adds the lines of the parts that either side has.
func partFields(to []Field, name string, before, after []string, from, now func(string) (Value, bool)) []Field {
	all := append([]string(nil), before...)
	for _, key := range after {
		if _, ok := from(key); !ok {
			all = append(all, key)
		}
	}
	for _, key := range all {
		a, inFrom := from(key)
		b, inNow := now(key)
		switch part := name + " " + key; {
		case inFrom && inNow:
			to = fields(to, part, a, b)
		case inFrom:
			to = append(to, Field{part, a.String(), none})
		default:
			to = append(to, Field{part, none, b.String()})
		}
	}
	return to
}

func distinct(list []string) int {
	seen := map[string]bool{}
	for _, x := range list {
		seen[x] = true
	}
	return len(seen)
}

// node is the value in a document.
func (v Value) node() *yaml.Node {
	switch v.form {
	case formWord:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.text}
	case formText:
		return textNode(v.text)
	case formList:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, x := range v.list {
			n.Content = append(n.Content, x.node())
		}
		return n
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i, x := range v.list {
		n.Content = append(n.Content, textNode(v.keys[i]), x.node())
	}
	return n
}

// textNode is a text in a document: quoted where YAML would read something else, and in base64
// where it is no UTF-8.
func textNode(text string) *yaml.Node {
	n := new(yaml.Node)
	n.SetString(text)
	if n.Style&yaml.LiteralStyle != 0 || utf8.ValidString(text) && !plainText(text) {
		n.Style = yaml.DoubleQuotedStyle // a block has no room for blanks at its ends
		if text != "" && tidyLines(text) {
			n.Style = yaml.LiteralStyle
		}
	}
	return n
}

// plainText reports whether a text has nothing but characters that show.
func plainText(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// tidyLines reports whether a text is lines of characters that show, with text at both ends of
// each.
func tidyLines(text string) bool {
	if !strings.Contains(text, "\n") {
		return false
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		if !plainText(line) || strings.TrimRight(line, " ") != line || (i == 0 || i == len(lines)-1) &&
			strings.TrimSpace(line) == "" ||
			i == 0 && line[0] == ' ' {
			return false
		}
	}
	return true
}
