package main

import "testing"

// TestApplyStory runs the commands of APPLY.md from top to bottom on real processes.
func TestApplyStory(t *testing.T) {
	t.Parallel()
	runPage(t, "APPLY.md")
}
