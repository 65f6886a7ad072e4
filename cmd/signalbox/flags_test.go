package main

import (
	"cmp"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// orText lists the flags that take a number, and with some verbs also a text: none or max, or the
// number of a key, as KEY=N.
var orText = map[string]bool{"rate": true, "limit": true, "weight": true}

// flagKinds has the types of flags that a user writes in the same way.
var flagKinds = map[string]string{
	"int": "number", "uint": "number", "uint32": "number", "uint64": "number",
	"list": "text", "stringArray": "text", "stringSlice": "text", "string": "text", // some can be repeated
}

// TestFlagsOfOneNameAgree: a flag is written in the same way with all verbs that have it.
func TestFlagsOfOneNameAgree(t *testing.T) {
	type use struct{ verb, kind string }
	first := map[string]use{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if orText[f.Name] || f.Name == "version" && !c.HasParent() { // every program has that
				return
			}
			kind := cmp.Or(flagKinds[f.Value.Type()], f.Value.Type())
			was, ok := first[f.Name]
			if !ok {
				first[f.Name] = use{c.CommandPath(), kind}
			} else if was.kind != kind {
				t.Errorf("--%s is a %s with %s and a %s with %s", f.Name, was.kind, was.verb, kind, c.CommandPath())
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(tree())
}
