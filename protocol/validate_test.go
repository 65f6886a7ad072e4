package protocol

import (
	"errors"
	"strings"
	"testing"
)

// TestValidate holds the ranges of the specification at both sides of each bound, and the order of checks: the first of several faults is named.
func TestValidate(t *testing.T) {
	head := Head{Session: 1, Seq: 5, Low: 5}
	name, longName, tooLong := []byte("lock"), make([]byte, MaxNameLen), make([]byte, MaxNameLen+1)
	data, tooMuch := make([]byte, MaxDataLen), make([]byte, MaxDataLen+1)
	key := make([]byte, KeyLen)
	text, tooMuchText := strings.Repeat("x", MaxDescriptionLen), strings.Repeat("x", MaxDescriptionLen+1)
	start := func(createID, key []byte, timeout uint64, description string) *SessionStart {
		return &SessionStart{Node: 1, CreateID: createID, Key: key, Timeout: timeout, Description: description}
	}
	cases := []struct {
		name string
		m    Validator
		want string // a part of the message; empty: valid
	}{
		{"hello", &Hello{Magic: Magic, Version: Version}, ""},
		{"hello of another protocol", &Hello{Magic: "HTTP", Version: Version}, "magic"},
		{"hello of version 0", &Hello{Magic: Magic}, "version 0"},
		{"hello of version 255", &Hello{Magic: Magic, Version: 255}, "version 255"},
		{"present without a ticket", &Present{}, "ticket is empty"},
		{"present", &Present{Ticket: []byte{1}, Description: text}, ""},
		{"present with a long description", &Present{Ticket: []byte{1}, Description: tooMuchText}, "description is 1025 bytes"},

		{"cluster", &Cluster{Method: MethodReplicationFactor, Body: data}, ""},
		{"cluster without a method", &Cluster{}, "method is 0 bytes"},
		{"cluster with a long method", &Cluster{Method: text}, "method is 1024 bytes"},
		{"cluster with a method of other characters", &Cluster{Method: "Drop it"}, "a-z"},
		{"cluster with much in it", &Cluster{Method: MethodStatus, Body: tooMuch}, "data is 1048577 bytes"},

		{"start", start(key, key, 10_000, text), ""},
		{"start with timeout 0", start(key, key, 0, ""), ""},
		{"start with the longest timeout", start(key, key, MaxSessionTimeout, ""), ""},
		{"start with a longer one", start(key, key, MaxSessionTimeout+1, ""), "timeout is 1800001 ms"},
		{"start with timeout 2^63", start(key, key, 1<<63, ""), "timeout"},
		{"start without a create id", start(nil, key, 0, ""), "create id is 0 bytes"},
		{"start with a create id of 15", start(key[1:], key, 0, ""), "create id is 15 bytes"},
		{"start without a key", start(key, nil, 0, ""), "key is 0 bytes"},
		{"start with a key of 17", start(key, make([]byte, 17), 0, ""), "key is 17 bytes"},
		{"start with a key of 1 MB", start(key, data, 0, ""), "key is 1048576 bytes"},
		{"start with a long description", start(key, key, 0, tooMuchText), "description is 1025 bytes"},
		{"start with a description of broken UTF-8", start(key, key, 0, "\xff"), "UTF-8"},
		{"start with control characters", start(key, key, 0, "\x00\n\x1b[31m"), ""},
		{"attach", &SessionAttach{Session: 1, Epoch: 2, Key: key}, ""},
		{"attach with a short key", &SessionAttach{Session: 1, Epoch: 2, Key: key[2:]}, "key is 14 bytes"},
		{"kill with a long reason", &SessionKill{Session: 1, Reason: tooMuchText}, "reason is 1025 bytes"},

		{"create", &Create{Head: head, Name: longName, Limit: Forever, Data: data}, ""},
		{"create without a name", &Create{Head: head, Limit: 1}, "name is empty"},
		{"create with a long name", &Create{Head: head, Name: tooLong, Limit: 1}, "name is 1025 bytes"},
		{"create with limit 0", &Create{Head: head, Name: name}, "limit is 0"},
		{"create with much data", &Create{Head: head, Name: name, Limit: 1, Data: tooMuch}, "data is 1048577 bytes"},
		{"create without a number", &Create{Name: name, Limit: 1}, "sequence number is 0"},
		{"update with much data", &Update{Head: head, Name: name, Data: tooMuch}, "data is"},
		{"update", &Update{Head: head, Name: name}, ""},
		{"resize to 0", &Resize{Head: head, Name: name}, "limit is 0"},
		{"resize", &Resize{Head: head, Name: name, Limit: 1}, ""},
		{"delete without a name", &Delete{Head: head}, "name is empty"},
		{"release with any bytes as a name", &Release{Head: head, Name: []byte("\x00/../\xff")}, ""},

		{"acquire", &Acquire{Head: head, Name: name, Count: Forever, Timeout: Forever, Data: data}, ""},
		{"acquire with timeout 0", &Acquire{Head: head, Name: name, Count: 1}, ""},
		{"acquire for a day", &Acquire{Head: head, Name: name, Count: 1, Timeout: MaxAcquireTimeout}, ""},
		{"acquire for longer", &Acquire{Head: head, Name: name, Count: 1, Timeout: MaxAcquireTimeout + 1}, "timeout is 86400001 ms"},
		{"acquire for nearly ever", &Acquire{Head: head, Name: name, Count: 1, Timeout: Forever - 1}, "timeout"},
		{"acquire of nothing, and more wrong", &Acquire{Head: head, Name: name, Timeout: Forever - 1, Data: tooMuch}, "count is 0"},
		{"acquire with a wrong timeout, and more wrong", &Acquire{Head: head, Name: name, Count: 1, Timeout: Forever - 1, Data: tooMuch}, "timeout"},
		{"acquire with much data", &Acquire{Head: head, Name: name, Count: 1, Data: tooMuch}, "data is"},
		{"accepted acquire that is sent again", &Acquire{Head: Head{Session: 1, Seq: 5, Low: 9}, Name: name, Count: 1}, ""},

		{"describe", &Describe{Node: 1, Name: name, Flags: WithOwners | WithWaiters}, ""},
		{"describe with a watch", &Describe{Session: 1, Node: 1, Name: name, Flags: WatchData | WatchOwners, Consistency: Relaxed}, ""},
		{"describe with a watch of nobody", &Describe{Node: 1, Name: name, Flags: WatchData}, "without a session"},
		{"describe with an unknown flag", &Describe{Node: 1, Name: name, Flags: 16}, "unknown flags"},
		{"describe with an unknown consistency", &Describe{Node: 1, Name: name, Consistency: 3}, "consistency is 3"},
		{"list", &List{Node: 1, Prefix: longName}, ""},
		{"list by a long prefix", &List{Node: 1, Prefix: tooLong}, "1025 bytes"},
		{"list with an unknown consistency", &List{Node: 1, Consistency: 9}, "consistency is 9"},
		{"watch of all", &Watch{Node: 1, Prefix: true}, ""},
		{"watch of no name", &Watch{Node: 1}, "name is empty"},
		{"watch of a long prefix", &Watch{Node: 1, Prefix: true, Name: tooLong}, "1025 bytes"},

		{"node create", &NodeCreate{Path: "/a"}, ""},
		{"node create of the root", &NodeCreate{Path: "/"}, "root"},
		{"node alter", &NodeAlter{Path: "a"}, "does not start"},
		{"node describe", &NodeDescribe{}, "empty"},
		{"node drop", &NodeDrop{Path: "/a b"}, "' '"},
		{"node list of all", &NodeList{}, ""},
		{"node list", &NodeList{Prefix: "/a/"}, ""},
		{"node list by half a path", &NodeList{Prefix: "a"}, "does not start"},
		{"node list by an illegal prefix", &NodeList{Prefix: "/é"}, "'é'"},
		{"node list by a long prefix", &NodeList{Prefix: "/" + strings.Repeat("x", MaxPathLen)}, "1025 bytes"},
	}
	for _, c := range cases {
		err := c.m.Validate()
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		want := StatusBadRequest
		if strings.Contains(c.name, "hello of version") {
			want = StatusUnsupported
		}
		if !errors.Is(err, want) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %v with %q", c.name, err, want, c.want)
		}
	}
}

func TestValidatePath(t *testing.T) {
	long := "/" + strings.Repeat("x", MaxPathLen-1)
	for _, path := range []string{"/a", "/default", "/services/billing", "/A.b-c_9/...", "/a/.b", long} {
		if err := ValidatePath(path); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
	for path, want := range map[string]string{
		"":           "empty",
		"/":          "root",
		"a":          "does not start with /",
		"a/b":        "does not start with /",
		"/a/":        "ends with",
		"//":         "ends with",
		"/a//b":      "segment is empty",
		"//a":        "segment is empty",
		"/.":         `segment "."`,
		"/a/../b":    `segment ".."`,
		"/..":        `segment ".."`,
		"/a b":       "character ' ' at byte 2",
		"/a\x00":     `character '\x00' at byte 2`,
		"/a\n":       `character '\n'`,
		"/a/é":       "character 'é' at byte 3",
		"/a\xff":     "character '\uFFFD'",
		"/a/%2e%2e":  "character '%'",
		`/a\b`:       `character '\\'`,
		"/a:b":       "character ':'",
		"/a/*":       "character '*'",
		long + "x":   "1025 bytes",
		"/\u202eabc": `character '\u202e'`,
	} {
		err := ValidatePath(path)
		if !errors.Is(err, StatusBadRequest) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %s", path, err, want)
		}
	}
}
