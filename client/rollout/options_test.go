package rollout

import (
	"reflect"
	"testing"
	"time"
)

// filled sets a value, and all that is in it, to what is no default.
func filled(t *testing.T, v reflect.Value) {
	t.Helper()
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		v.SetInt(int64(7 * time.Second))
	case v.CanUint():
		v.SetUint(3)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.Kind() == reflect.String:
		v.SetString("x")
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		filled(t, v.Index(0))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			filled(t, v.Field(i))
		}
	default:
		t.Fatalf("a config has a %s: say here which value of it is no default", v.Type())
	}
}

// TestConfigIsSent: each field of a config, of its locations and of their gates is sent, and is read back
// as what it was. The fields are found by their type, so that one that is added is looked at too.
func TestConfigIsSent(t *testing.T) {
	var all Config
	filled(t, reflect.ValueOf(&all).Elem())
	w, err := all.wire()
	if err != nil {
		t.Fatal(err)
	}
	if got := configOf(&w); !reflect.DeepEqual(got, all) {
		t.Errorf("%+v\ncomes back as\n%+v", all, got)
	}
	location := func(c *Config) any { return &c.Locations[0] }
	gate := func(c *Config) any { return &c.Locations[0].Gates[0] }
	for _, part := range []func(*Config) any{func(c *Config) any { return c }, location, gate} {
		copied := func() *Config {
			c := Config{Locations: []Location{{Gates: []Gate{{}}}}}
			return &c
		}
		typ := reflect.TypeOf(part(copied())).Elem()
		for i := range typ.NumField() {
			without, with := copied(), copied()
			filled(t, reflect.ValueOf(part(with)).Elem().Field(i))
			before, err := without.wire()
			after, err2 := with.wire()
			if err != nil || err2 != nil || reflect.DeepEqual(before, after) {
				t.Errorf("%s.%s is not sent: %+v, %v, %v", typ, typ.Field(i).Name, after, err, err2)
			}
		}
	}
}
