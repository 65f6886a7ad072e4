package protocol

import (
	"errors"
	"strings"
	"testing"
)

// TestTimesOfMessages: each time of a request is refused above its most, and when it is a negative
// number that was made unsigned. The state machines and the listener call the same Validate.
func TestTimesOfMessages(t *testing.T) {
	head, name, key := Head{Session: 1, Seq: 1, Low: 1}, []byte("n"), make([]byte, KeyLen)
	track := func(c TrackConfig, l LocationConfig, g GateConfig) Message {
		g.Name, g.Kind = "g", GateCommand
		l.Name, l.Gates = "l", []GateConfig{g}
		c.Source, c.Locations = SourcePublished, []LocationConfig{l}
		return &TrackCreate{Head: head, Name: name, Config: c}
	}
	node := func(c NodeConfig) Message {
		return checked{check: func() error {
			_, err := DefaultNodeConfig().Merge(c)
			return err
		}}
	}
	for field, c := range map[string]struct {
		most uint64
		with func(ms uint64) Message
	}{
		"acquire timeout": {MaxAcquireTimeout, func(ms uint64) Message {
			return &Acquire{Head: head, Name: name, Count: 1, Timeout: ms}
		}},
		"session timeout": {MaxSessionTimeout, func(ms uint64) Message {
			return &SessionStart{Nonce: 1, CreateID: key, Key: key, Timeout: ms}
		}},
		"session timeout of an attach": {MaxSessionTimeout, func(ms uint64) Message { return &SessionAttach{Nonce: 1, Key: key, Timeout: ms} }},
		"self-check period": {MaxSelfCheckPeriod, func(ms uint64) Message {
			return node(NodeConfig{Fields: FieldSelfCheckPeriod | FieldGracePeriod, SelfCheckPeriod: ms, GracePeriod: MaxGracePeriod})
		}},
		"session grace period": {MaxGracePeriod, func(ms uint64) Message { return node(NodeConfig{Fields: FieldGracePeriod, GracePeriod: ms}) }},
		"debounce": {MaxProcessDuration, func(ms uint64) Message {
			return &ProcessAlter{Name: name, Options: ProcessOptions{Debounce: ms}}
		}},
		"round timeout": {MaxProcessDuration, func(ms uint64) Message {
			return &ProcessAlter{Name: name, Options: ProcessOptions{RoundTimeout: ms}}
		}},
		"least back-off": {MaxProcessDuration, func(ms uint64) Message {
			return &ProcessAlter{Name: name, Options: ProcessOptions{BackoffMin: ms}}
		}},
		"greatest back-off": {MaxProcessDuration, func(ms uint64) Message {
			return &ProcessAlter{Name: name, Options: ProcessOptions{BackoffMax: ms}}
		}},
		"time to return": {MaxProcessDuration, func(ms uint64) Message {
			return &ProcessJoin{Head: head, Name: name, Options: ProcessOptions{Return: ms}}
		}},
		"implicit after": {MaxTrackDuration, func(ms uint64) Message {
			return track(TrackConfig{ImplicitAfter: ms}, LocationConfig{}, GateConfig{})
		}},
		"stall timeout": {MaxTrackDuration, func(ms uint64) Message { return track(TrackConfig{StallTimeout: ms}, LocationConfig{}, GateConfig{}) }},
		"skip empty after": {MaxTrackDuration, func(ms uint64) Message {
			return track(TrackConfig{SkipEmptyAfter: ms}, LocationConfig{}, GateConfig{})
		}},
		"reelect interval": {MaxTrackDuration, func(ms uint64) Message {
			return track(TrackConfig{ReelectMinInterval: ms}, LocationConfig{}, GateConfig{})
		}},
		"advance interval": {MaxTrackDuration, func(ms uint64) Message {
			return track(TrackConfig{MinAdvanceInterval: ms}, LocationConfig{}, GateConfig{})
		}},
		"retention": {MaxTrackDuration, func(ms uint64) Message {
			return track(TrackConfig{Retention: ms}, LocationConfig{}, GateConfig{})
		}},
		"delay": {MaxTrackDuration, func(ms uint64) Message {
			return track(TrackConfig{}, LocationConfig{Delay: ms}, GateConfig{})
		}},
		"bake":       {MaxTrackDuration, func(ms uint64) Message { return track(TrackConfig{}, LocationConfig{Bake: ms}, GateConfig{}) }},
		"share bake": {MaxTrackDuration, func(ms uint64) Message { return track(TrackConfig{}, LocationConfig{ShareBake: ms}, GateConfig{}) }},
		"timeout": {MaxTrackDuration, func(ms uint64) Message {
			return track(TrackConfig{}, LocationConfig{}, GateConfig{Timeout: ms})
		}},
		"retry": {MaxTrackDuration, func(ms uint64) Message {
			return track(TrackConfig{}, LocationConfig{}, GateConfig{Retry: ms})
		}},
	} {
		word, _, _ := strings.Cut(field, " of ")
		if err := Validate(c.with(c.most)); err != nil {
			t.Errorf("%s: its most is refused: %v", field, err)
		}
		const hour = -3_600_000
		minus := int64(hour)
		for ms, shown := range map[uint64]string{c.most + 1: "", uint64(minus): "-3600000 ms"} {
			err := Validate(c.with(ms))
			if !errors.Is(err, StatusBadRequest) || !strings.Contains(err.Error(), word+" is "+shown) {
				t.Errorf("%s: %d ms: %v", field, ms, err)
			}
		}
	}
}

// checked is checked by a function.
type checked struct {
	Message
	check func() error
}

func (c checked) Validate() error { return c.check() }
