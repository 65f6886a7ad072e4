package loadgen

import "testing"

func TestSumMetrics(t *testing.T) {
	m := sumMetrics([]byte("# HELP x\na{shard=\"1\"} 2\na{shard=\"2\"} 3.5\nb 7\nnonsense\n"))
	if m["a"] != 5.5 || m["b"] != 7 || len(m) != 2 {
		t.Errorf("%v", m)
	}
}
