package binary

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestProgram: each test gets a file of its own, and the program is built once.
func TestProgram(t *testing.T) {
	a, b := Signalbox(t), Signalbox(t)
	if a == b {
		t.Errorf("two tests have one file, %s", a)
	}
	first, err := os.Stat(a)
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.Stat(b)
	if err != nil {
		t.Fatal(err)
	}
	if first.Size() != second.Size() || !first.ModTime().Equal(second.ModTime()) {
		t.Errorf("the program was built twice: %v, %v", first, second)
	}
	out, err := exec.Command(a, "version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "protocol") {
		t.Errorf("%v: %s", err, out)
	}
}
