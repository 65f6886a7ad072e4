package clienthost

import "testing"

func TestOf(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"10.0.0.1:80": "10.0.0.1", "[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::", "[2001:db8:1:2::]:81": "2001:db8:1:2::",
		"[2001:db8:1:3::]:80": "2001:db8:1:3::", "[::1]:80": "::", "[fe80::1%eth0]:80": "fe80::",
		"[::ffff:10.0.0.1]:80": "10.0.0.1", "[64:ff9b::a00:1]:80": "10.0.0.1", "host:80": "host", "x": "x",
	} {
		if got := Of(remote); got != want {
			t.Errorf("%s is of %s, want %s", remote, got, want)
		}
	}
}
