package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestIdentityFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "identity.json")
	store := FileStore(path)
	if _, found, err := LoadIdentity(store); found || err != nil {
		t.Fatalf("a new folder: %v, %v", found, err)
	}
	id := Identity{UUID: "u", Founder: true, Cluster: "c", Instance: 1, MetaReplica: 2, MetaLogged: 2,
		RaftAddress: "a:1", Known: []string{"b:1"}}
	if err := SaveIdentity(store, id); err != nil {
		t.Fatal(err)
	}
	id.Format = IdentityFormat
	if got, found, err := LoadIdentity(store); !found || err != nil || !reflect.DeepEqual(got, id) {
		t.Errorf("%+v, %v, %v", got, found, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("others may read it: %v, %v", info.Mode(), err)
	}
	if list, _ := os.ReadDir(dir); len(list) != 1 {
		t.Errorf("%d files are left", len(list))
	}
	whole, _ := os.ReadFile(path)
	for _, x := range []struct{ text, want string }{
		{`{"format":2,"uuid":"u"}`, "newer binary"},
		{`{"format":1}`, "not whole"},
		{`{"format":1,"uuid":"u"}`, "not whole"}, // without a sum
		{`{"uuid":"u"}`, "not whole"},
		{`{"format":1,"uuid":"u","instance":3}`, "not whole"},
		{`{"format":1,"uuid":["u"]}`, "cannot be read"},
		{string(whole[:len(whole)/2]), "cannot be read"},
		{"\x00\xff", "cannot be read"},
		{"null", "not whole"},
	} {
		if err := os.WriteFile(path, []byte(x.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, found, err := LoadIdentity(store); found || err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%q: %v, %v; want %q", x.text, found, err, x.want)
		}
	}
	nameless := new(memoryStore)
	if err := SaveIdentity(nameless, Identity{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadIdentity(nameless); err == nil || !strings.Contains(err.Error(), "names no uuid") {
		t.Errorf("an identity without a uuid: %v", err)
	}
	// An empty file is not a new folder: something was lost.
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, found, err := LoadIdentity(store); found || err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty file: %v, %v", found, err)
	}
	if err := SaveIdentity(FileStore(filepath.Join(dir, "no", "such")), id); err == nil ||
		!strings.Contains(err.Error(), "write the instance's identity") {
		t.Error(err)
	}
	if _, _, err := LoadIdentity(&memoryStore{err: errDisk}); !errors.Is(err, errDisk) {
		t.Error(err)
	}
}

// FuzzIdentity: any bytes in the identity's file are an error that is a sentence, or an identity
// that is whole.
func FuzzIdentity(f *testing.F) {
	for _, text := range []string{`{"format":1,"uuid":"u","instance":3,"meta_replica":1}`, `{"format":2,"uuid":"u"}`,
		"null", "[]", "", "\xff", `{"format":1e9}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		id, found, err := LoadIdentity(&memoryStore{b: b})
		switch {
		case found && (err != nil || id.UUID == "" || id.Format != IdentityFormat || id.Joined() && id.MetaReplica == 0):
			t.Errorf("%+v, %v", id, err)
		case !found && err == nil && len(b) > 0:
			t.Error("an instance that was is taken for none")
		}
	})
}
