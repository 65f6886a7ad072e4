package protocol

import (
	"errors"
	"strings"
	"testing"
)

// TestValidate holds the ranges of the specification at both sides of each bound, and the order of
// checks: the first of several faults is named.
func TestValidate(t *testing.T) {
	head := Head{Session: 1, Seq: 5, Low: 5}
	name, longName, tooLong := []byte("lock"), make([]byte, MaxNameLen), make([]byte, MaxNameLen+1)
	data, tooMuch := make([]byte, MaxDataLen), make([]byte, MaxDataLen+1)
	key := make([]byte, KeyLen)
	text, tooMuchText := strings.Repeat("x", MaxDescriptionLen), strings.Repeat("x", MaxDescriptionLen+1)
	start := func(createID, key []byte, timeout uint64, description string) *SessionStart {
		return &SessionStart{Node: 1, CreateID: createID, Key: key, Timeout: timeout, Description: description, Nonce: 1}
	}
	create := func(change func(*TrackConfig)) *TrackCreate {
		m := &TrackCreate{Head: head, Name: name, Config: sampleTrackConfig}
		change(&m.Config)
		return m
	}
	places := func(n int) []LocationConfig {
		list := make([]LocationConfig, n)
		for i := range list {
			list[i].Name = strings.Repeat("x", i+1)
		}
		return list
	}
	cases := []struct {
		name string
		m    Message
		want string // a part of the message; empty: valid
	}{
		{"hello", &Hello{Magic: Magic, Version: Version}, ""},
		{"hello of another protocol", &Hello{Magic: "HTTP", Version: Version}, "magic"},
		{"hello of version 0", &Hello{Magic: Magic}, "version 0"},
		{"hello of version 255", &Hello{Magic: Magic, Version: 255}, "version 255"},
		{"present without a ticket", &PresentTicket{}, "ticket is empty"},
		{"present", &PresentTicket{Ticket: []byte{1}, Description: text}, ""},
		{"present with a long description", &PresentTicket{Ticket: []byte{1}, Description: tooMuchText}, "description is 1025 bytes"},

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
		{"start without a nonce", &SessionStart{CreateID: key, Key: key}, "nonce is 0"},
		{"attach", &SessionAttach{Session: 1, Epoch: 2, Key: key, Nonce: 1}, ""},
		{"attach without a nonce", &SessionAttach{Session: 1, Epoch: 2, Key: key}, "nonce is 0"},
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
		{"release to its own session", &Release{Head: head, Name: []byte("a"), To: head.Session}, "itself; name another one"},
		{"release to another session", &Release{Head: head, Name: []byte("a"), To: head.Session + 1}, ""},
		{"release at a bound", &Release{Head: head, Name: []byte("a"), Bound: HoldPreempted}, ""},
		{"release by force", &Release{Head: head, Name: []byte("a"), Bound: HoldForced}, "bound 3 of a release is unknown"},
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
		{"describe with an unknown flag", &Describe{Node: 1, Name: name, Flags: 32}, "unknown flags"},
		{"describe with an unknown consistency", &Describe{Node: 1, Name: name, Consistency: 3}, "consistency is 3"},
		{"list", &List{Node: 1, Prefix: longName}, ""},
		{"list by a long prefix", &List{Node: 1, Prefix: tooLong}, "1025 bytes"},
		{"list with an unknown consistency", &List{Node: 1, Consistency: 9}, "consistency is 9"},
		{"watch of all", &Watch{Node: 1, Prefix: true}, ""},
		{"watch of no name", &Watch{Node: 1}, "name is empty"},
		{"watch of a long prefix", &Watch{Node: 1, Prefix: true, Name: tooLong}, "1025 bytes"},

		{"track create", &TrackCreate{Head: head, Name: longName, Config: sampleTrackConfig}, ""},
		{"track create without a name", &TrackCreate{Head: head, Config: sampleTrackConfig}, "track name is 0 bytes"},
		{"track create with a long name", &TrackCreate{Head: head, Name: tooLong, Config: sampleTrackConfig}, "track name is 1025 bytes"},
		{"track create without a number", &TrackCreate{Name: name, Config: sampleTrackConfig}, "sequence number is 0"},
		{"track create without a source", create(func(c *TrackConfig) { c.Source = 0 }), "source is 0"},
		{"track create with an unknown source", create(func(c *TrackConfig) { c.Source = 4 }), "source is 4"},
		{"track create with delays from nowhere", create(func(c *TrackConfig) { c.DelayFrom = 2 }), "delay from is 2"},
		{"track create without locations", create(func(c *TrackConfig) { c.Locations = nil }), "0 locations"},
		{"track create with 64 locations", create(func(c *TrackConfig) { c.Locations = places(64) }), ""},
		{"track create with 65 locations", create(func(c *TrackConfig) { c.Locations = places(65) }), "65 locations"},
		{"track create with 33 codes", create(func(c *TrackConfig) { c.ExplicitCodes = make([]string, 33) }), "33 explicit codes"},
		{"track create with an empty code", create(func(c *TrackConfig) { c.ExplicitCodes = []string{""} }), "explicit code is empty"},
		{"track create with a long time", create(func(c *TrackConfig) { c.Retention = MaxTrackDuration + 1 }), "retention is 4294967297 ms"},
		{"track create with the longest time", create(func(c *TrackConfig) { c.Retention = MaxTrackDuration }), ""},
		{"track create with a location of no name", create(func(c *TrackConfig) { c.Locations = []LocationConfig{{}} }), "location name is empty"},
		{"track create with a share of 101", create(func(c *TrackConfig) { c.Locations = []LocationConfig{{Name: "a", Share: 101}} }), "share is 101"},
		{"track create with a long delay", create(func(c *TrackConfig) { c.Locations = []LocationConfig{{Name: "a", Delay: Forever}} }), "location a: delay is -1 ms"},
		{"track create with 9 gates", create(func(c *TrackConfig) { c.Locations = []LocationConfig{{Name: "a", Gates: make([]GateConfig, 9)}} }), "9 gates"},
		{"track create with a gate of no kind", create(func(c *TrackConfig) { c.Locations = []LocationConfig{{Name: "a", Gates: []GateConfig{{Name: "g"}}}} }), "kind is 0"},
		{"track create with a gate of a long time", create(func(c *TrackConfig) {
			c.Locations = []LocationConfig{{Name: "a", Gates: []GateConfig{{Name: "g", Kind: GateWebhook, Timeout: Forever}}}}
		}), "gate g: timeout is -1 ms"},
		{"track create with a gate of much text", create(func(c *TrackConfig) {
			c.Locations = []LocationConfig{{Name: "a", Gates: []GateConfig{{Name: "g", Kind: GateWebhook, Spec: text + text + "x"}}}}
		}), "2048 bytes"},
		{"track alter without locations", &TrackAlter{Head: head, Name: name, Config: TrackConfig{Source: SourceTSO}}, "0 locations"},
		{"track delete without a name", &TrackDelete{Head: head}, "track name is 0 bytes"},
		{"track register", &TrackRegister{Head: head, Name: name, ID: text[:255], Location: text[:128], Role: InstanceLeader, Meta: text}, ""},
		{"track register of nobody", &TrackRegister{Head: head, Name: name, Location: "a", Role: InstanceLeader}, "instance id is empty"},
		{"track register of a long id", &TrackRegister{Head: head, Name: name, ID: text[:256], Location: "a", Role: InstanceLeader}, "instance id is 256 bytes"},
		{"track register nowhere", &TrackRegister{Head: head, Name: name, ID: "a", Role: InstanceLeader}, "location name is empty"},
		{"track register without a role", &TrackRegister{Head: head, Name: name, ID: "a", Location: "a"}, "role is 0"},
		{"track register with much meta", &TrackRegister{Head: head, Name: name, ID: "a", Location: "a", Role: InstanceLeader, Meta: tooMuchText}, "meta is 1025 bytes"},
		{"track register with control characters", &TrackRegister{Head: head, Name: name, ID: "a\n", Location: "a", Role: InstanceLeader}, "control characters"},
		{"track register with DEL", &TrackRegister{Head: head, Name: name, ID: "a\x7f", Location: "a", Role: InstanceLeader}, "control characters"},
		{"track register of broken UTF-8", &TrackRegister{Head: head, Name: name, ID: "\xff", Location: "a", Role: InstanceLeader}, "UTF-8"},
		{"track unregister without an incarnation", &TrackUnregister{Head: head, Name: name, ID: "a"}, "incarnation is 0"},
		{"track poll", &TrackPoll{Session: 1, Name: name, ID: "a", Incarnation: 1}, ""},
		{"track poll without an incarnation", &TrackPoll{Session: 1, Name: name, ID: "a"}, "incarnation is 0"},
		{"track poll with a version of 2^63", &TrackPoll{Session: 1, Name: name, ID: "a", Incarnation: 1, Report: UpdateReport{Seq: 1, Current: 1 << 63}}, "2^63-1"},
		{"track poll with a long code", &TrackPoll{Session: 1, Name: name, ID: "a", Incarnation: 1, Report: UpdateReport{Seq: 1, Code: text[:129]}}, "code is 129 bytes"},
		{"track poll with a long message", &TrackPoll{Session: 1, Name: name, ID: "a", Incarnation: 1, Report: UpdateReport{Seq: 1, Message: text[:257]}}, "message is 257 bytes"},
		{"track report without a number", &TrackReport{Session: 1, Name: name, ID: "a", Incarnation: 1}, "report number is 0"},
		{"track report", &TrackReport{Session: 1, Name: name, ID: "a", Incarnation: 1, Report: UpdateReport{Seq: 1, Target: MaxTrackVersion}}, ""},
		{"track role without one", &TrackSetRole{Head: head, Name: name, ID: "a", Incarnation: 1}, "role is 0"},
		{"track publish", &TrackPublish{Head: head, Name: name, Payload: data[:MaxTrackPayload]}, ""},
		{"track publish of much", &TrackPublish{Head: head, Name: name, Payload: data[:MaxTrackPayload+1]}, "payload is 65537 bytes"},
		{"track publish of 2^63", &TrackPublish{Head: head, Name: name, Version: 1 << 63}, "2^63-1"},
		{"track withdraw of 2^63", &TrackWithdraw{Head: head, Name: name, Version: 1 << 63}, "2^63-1"},
		{"track pause of all", &TrackAdmin{Head: head, Name: name, Verb: TrackPause}, ""},
		{"track promote of nothing", &TrackAdmin{Head: head, Name: name, Verb: TrackPromote}, "no location is named"},
		{"track admin without a verb", &TrackAdmin{Head: head, Name: name}, "verb is 0"},
		{"track admin of an unknown verb", &TrackAdmin{Head: head, Name: name, Verb: 9}, "verb is 9"},
		{"track drop of nobody", &TrackAdmin{Head: head, Name: name, Verb: TrackEvict}, "instance id is empty"},
		{"track drop", &TrackAdmin{Head: head, Name: name, Verb: TrackEvict, ID: "a"}, ""},
		{"track drop of any version", &TrackAdmin{Head: head, Name: name, Verb: TrackEvict, ID: "a", Version: 1 << 63}, ""},
		{"track exclude of 65 locations", &TrackAdmin{Head: head, Name: name, Verb: TrackExclude, Locations: make([]string, 65)}, "65 locations"},
		{"track exclude of an empty name", &TrackAdmin{Head: head, Name: name, Verb: TrackExclude, Locations: []string{""}}, "location name is empty"},
		{"track advance", &TrackAdvance{Head: head, Name: name, Version: 1}, ""},
		{"track advance that failed", &TrackAdvance{Head: head, Name: name, Expected: 1, Text: text[:256]}, ""},
		{"track advance of nothing", &TrackAdvance{Head: head, Name: name, Expected: 1}, "give one of the two"},
		{"track advance of both", &TrackAdvance{Head: head, Name: name, Version: 1, Text: "a"}, "give one of the two"},
		{"track advance of 2^63", &TrackAdvance{Head: head, Name: name, Version: 1 << 63}, "2^63-1"},
		{"track advance with a long error", &TrackAdvance{Head: head, Name: name, Text: text[:257]}, "source error is 257 bytes"},
		{"track gate without an outcome", &TrackGateReport{Head: head, Name: name, Location: "a", Gate: "g"}, "outcome is 0"},
		{"track gate with much text", &TrackGateReport{Head: head, Name: name, Location: "a", Gate: "g", Outcome: GateSuccess, Text: text[:257]}, "gate text is 257 bytes"},
		{"track gate", &TrackGateReport{Head: head, Name: name, Location: "a", Gate: "g", Outcome: GateInconclusive, Text: text[:256]}, ""},
		{"track describe with an unknown flag", &TrackDescribe{Name: name, Flags: 4}, "unknown flags"},
		{"track describe with an unknown consistency", &TrackDescribe{Name: name, Consistency: 3}, "consistency is 3"},
		{"track history of nowhere", &TrackHistory{Name: name}, "location name is empty"},
		{"track list by a long prefix", &TrackList{Prefix: tooLong}, "1025 bytes"},
		{"track watch of no name", &TrackWatch{}, "track name is 0 bytes"},
		{"track watch", &TrackWatch{Name: name, Location: text[:128]}, ""},
		{"track watch of a long location", &TrackWatch{Name: name, Location: text[:129]}, "129 bytes"},

		{"process join", &ProcessJoin{Head: head, Name: []byte(text[:128]), Key: text[:128], Data: data[:512], Options: sampleOptions}, ""},
		{"process join with another name", &ProcessJoin{Head: head, Name: []byte("a-b.C-9")}, ""},
		{"process join without a name", &ProcessJoin{Head: head}, "process name is 0 bytes"},
		{"process join with a long name", &ProcessJoin{Head: head, Name: []byte(text[:129])}, "process name is 129 bytes"},
		{"process join with a slash", &ProcessJoin{Head: head, Name: []byte("a/b")}, "letters and digits"},
		{"process join with two dashes", &ProcessJoin{Head: head, Name: []byte("a--b")}, "letters and digits"},
		{"process join with a dash in front", &ProcessJoin{Head: head, Name: []byte("-a")}, "letters and digits"},
		{"process join with a dot behind", &ProcessJoin{Head: head, Name: []byte("a.")}, "letters and digits"},
		{"process join with a dot and a blank", &ProcessJoin{Head: head, Name: []byte("a. b")}, "letters and digits"},
		{"process join without a number", &ProcessJoin{Name: name}, "sequence number is 0"},
		{"process join with a long key", &ProcessJoin{Head: head, Name: name, Key: text[:129]}, "member key is 129 bytes"},
		{"process join with broken UTF-8", &ProcessJoin{Head: head, Name: name, Key: "\xff"}, "UTF-8"},
		{"process join with much data", &ProcessJoin{Head: head, Name: name, Data: data[:513]}, "member data is 513 bytes"},
		{"process join with an unknown election", &ProcessJoin{Head: head, Name: name, Options: ProcessOptions{Election: 3}}, "election is 3"},
		{"process join with a debounce of a day", &ProcessJoin{Head: head, Name: name, Options: ProcessOptions{Debounce: MaxProcessDuration}}, ""},
		{"process join with a longer one", &ProcessJoin{Head: head, Name: name, Options: ProcessOptions{Debounce: MaxProcessDuration + 1}}, "debounce is 86400001 ms"},
		{"process join with back-offs that cross", &ProcessJoin{Head: head, Name: name, Options: ProcessOptions{BackoffMin: 2, BackoffMax: 1}}, "least back-off is 2 ms"},
		{"process join with a least back-off", &ProcessJoin{Head: head, Name: name, Options: ProcessOptions{BackoffMin: 9_000}}, ""},
		{"process leave without a name", &ProcessLeave{Head: head}, "process name is 0 bytes"},
		{"process confirm", &ProcessConfirm{Session: 1, Name: name, Epoch: 1, Step: StepPrepared}, ""},
		{"process confirm of nothing", &ProcessConfirm{Session: 1, Name: name, Epoch: 1}, "step is 0"},
		{"process confirm of an unknown step", &ProcessConfirm{Session: 1, Name: name, Epoch: 1, Step: 3}, "step is 3"},
		{"process confirm without an epoch", &ProcessConfirm{Session: 1, Name: name, Step: StepPrepared}, "epoch is 0"},
		{"process confirm of nobody", &ProcessConfirm{Name: name, Epoch: 1, Step: StepPrepared}, "session is 0"},
		{"process fail", &ProcessFail{Session: 1, Name: name, Epoch: 1, Text: text}, ""},
		{"process fail with much text", &ProcessFail{Session: 1, Name: name, Epoch: 1, Text: tooMuchText}, "text is 1025 bytes"},
		{"process complete", &ProcessComplete{Head: head, Name: name, Epoch: 1, Result: data[:MaxProcessResult]}, ""},
		{"process complete with much", &ProcessComplete{Head: head, Name: name, Epoch: 1, Result: data[:MaxProcessResult+1]}, "result is 32769 bytes"},
		{"process complete without a number", &ProcessComplete{Head: Head{Session: 1}, Name: name, Epoch: 1}, "sequence number is 0"},
		{"process force with much text", &ProcessForceRound{Name: name, Text: tooMuchText}, "reason is 1025 bytes"},
		{"process evict of nobody", &ProcessEvict{Name: name}, "session is 0"},
		{"process alter to an unknown election", &ProcessAlter{Name: name, Options: ProcessOptions{Election: 9}}, "election is 9"},
		{"process sync of no round", &ProcessSync{Session: 1, Name: name}, ""},
		{"process sync of nobody", &ProcessSync{Name: name}, "session is 0"},
		{"process request", &ProcessRequest{Session: 1, Name: name, Epoch: 1, Number: 1, Low: 1, To: make([]uint64, 1000), Payload: data}, ""},
		{"process request without a number", &ProcessRequest{Session: 1, Name: name, Epoch: 1, To: []uint64{1}}, "number 0 and low 0"},
		{"process request with a high low", &ProcessRequest{Session: 1, Name: name, Epoch: 1, Number: 1, Low: 2, To: []uint64{1}}, "number 1 and low 2"},
		{"process request to nobody", &ProcessRequest{Session: 1, Name: name, Epoch: 1, Number: 1, Low: 1}, "0 receivers"},
		{"process request to 1001", &ProcessRequest{Session: 1, Name: name, Epoch: 1, Number: 1, Low: 1, To: make([]uint64, 1001)}, "1001 receivers"},
		{"process request with much", &ProcessRequest{Session: 1, Name: name, Epoch: 1, Number: 1, Low: 1, To: []uint64{1}, Payload: tooMuch}, "1048577 bytes"},
		{"process reply", &ProcessReply{Session: 1, Name: name, Epoch: 1, To: 1, Number: 1, Payload: data}, ""},
		{"process reply to nobody", &ProcessReply{Session: 1, Name: name, Epoch: 1, Number: 1}, "sender 0 and number 1"},
		{"process reply to nothing", &ProcessReply{Session: 1, Name: name, Epoch: 1, To: 1}, "sender 1 and number 0"},
		{"process reply with much", &ProcessReply{Session: 1, Name: name, Epoch: 1, To: 1, Number: 1, Payload: tooMuch}, "1048577 bytes"},
		{"process describe with an unknown flag", &ProcessDescribe{Name: name, Flags: 4}, "unknown flags"},
		{"process describe with an unknown consistency", &ProcessDescribe{Name: name, Consistency: 3}, "consistency is 3"},
		{"process list", &ProcessList{Prefix: []byte("a-")}, ""},
		{"process list by a long prefix", &ProcessList{Prefix: []byte(text[:129])}, "129 bytes"},
		{"process watch of no name", &ProcessWatch{}, "process name is 0 bytes"},

		{"node create", &NodeCreate{Path: "/a"}, ""},
		{"node create of the root", &NodeCreate{Path: "/"}, "root"},
		{"node alter", &NodeAlter{Path: "a"}, "does not start"},
		{"node describe", &NodeDescribe{}, "empty"},
		{"node delete", &NodeDelete{Path: "/a b"}, "' '"},
		{"node delete by force", &NodeDelete{Path: "/a", Force: true, Reason: " "}, "reason is empty"},
		{"node list of all", &NodeList{}, ""},
		{"node list", &NodeList{Prefix: "/a/"}, ""},
		{"node list by half a path", &NodeList{Prefix: "a"}, "does not start"},
		{"node list by an illegal prefix", &NodeList{Prefix: "/é"}, "'é'"},
		{"node list by a long prefix", &NodeList{Prefix: "/" + strings.Repeat("x", MaxPathLen)}, "1025 bytes"},
	}
	for _, c := range cases {
		err := Validate(c.m)
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
