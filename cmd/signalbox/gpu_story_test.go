package main

import (
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestGPUStory runs the commands of GPUS.md from top to bottom on real processes.
func TestGPUStory(t *testing.T) {
	form.SkipUntil(t, form.Full, "a story of processes")
	t.Parallel()
	_, out := runPage(t, "GPUS.md")
	if !strings.Contains(out, "new fans for g6,g7\n") {
		t.Error("the maintenance did not have its GPUs")
	}
}
