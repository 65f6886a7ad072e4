package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestDurationFlags: every flag of every command that is a duration refuses one that is negative or
// has no unit. Those that are read later, for they may be a word too, are in the script
// usage.txtar.
func TestDurationFlags(t *testing.T) {
	seen := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "duration" {
				return
			}
			seen++
			for _, text := range []string{"-1h", "-1ns", "5", "", "soon", "1e3", "NaN", "9223372036854775808ns"} {
				if err := f.Value.Set(text); err == nil {
					t.Errorf("%s --%s takes %q", c.CommandPath(), f.Name, text)
				}
			}
			if err := f.Value.Set("1ns"); err != nil || f.Value.String() != "1ns" {
				t.Errorf("%s --%s 1ns is %s, %v", c.CommandPath(), f.Name, f.Value, err)
			}
		})
		for _, s := range c.Commands() {
			walk(s)
		}
	}
	walk(newApp(t.Context(), nil, nil, nil).root())
	if seen < 12 {
		t.Errorf("found %d flags", seen)
	}
}
