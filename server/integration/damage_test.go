package integration

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// damagedEnv makes the test binary start a server on each of some folders. The engine may panic on
// any goroutine, so it is another process.
const damagedEnv = "SIGNALBOX_TEST_DAMAGED"

// opened is what became of a folder. All of it is empty if the process has ended before.
type opened struct {
	Served  string `json:"served"`  // what the server had
	Refused string `json:"refused"` // why it was not started
	Rescue  string `json:"rescue"`  // the digests of what is left, or why there are none
}

// TestServeDamaged is the other process of TestDamagedFolder.
func TestServeDamaged(t *testing.T) {
	folders := os.Getenv(damagedEnv)
	if folders == "" {
		t.Skip("a part of TestDamagedFolder, in a process of its own")
	}
	for _, dir := range filepath.SplitList(folders) {
		var o opened
		data := filepath.Join(dir, "data")
		if sums, err := tryDigests(t, data); err != nil {
			o.Rescue = err.Error()
		} else {
			o.Rescue = fmt.Sprint(sums)
		}
		o.Served, o.Refused = serveOnce(t, data)
		b, err := json.Marshal(&o)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "outcome"), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// serveOnce serves a folder, and lists what it has, and whose it is.
func serveOnce(t *testing.T, data string) (served, refused string) {
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	s, err := startServer(ctx, folderConfig(t, data))
	if err != nil {
		return "", err.Error()
	}
	defer s.Close()
	state := s.Meta.State()
	i, _ := state.Instance(s.Instance())
	return fmt.Sprintf("%s %d of %s\n%s", i.UUID, i.ID, state.Cluster(), listing(t, s)), ""
}

// openDamaged opens folders, in as many processes as it takes; output is what a process said in
// whose time nothing became of the folder.
func openDamaged(t *testing.T, folders []string) (list []opened, output []string) {
	t.Helper()
	list, output = make([]opened, len(folders)), make([]string, len(folders))
	for next := 0; next < len(folders); {
		cmd := exec.Command(os.Args[0], "-test.run=^TestServeDamaged$", "-test.timeout=10m")
		cmd.Env = append(os.Environ(), damagedEnv+"="+strings.Join(folders[next:], string(filepath.ListSeparator)))
		said, err := cmd.CombinedOutput()
		for ; next < len(folders); next++ {
			b, rerr := os.ReadFile(filepath.Join(folders[next], "outcome"))
			if errors.Is(rerr, fs.ErrNotExist) {
				output[next] = fmt.Sprintf("%v\n%.4000s", err, said)
				next++
				break
			}
			if rerr = errors.Join(rerr, json.Unmarshal(b, &list[next])); rerr != nil {
				t.Fatal(rerr)
			}
		}
	}
	return list, output
}

// folder is a data folder in memory: its files by their paths.
type folder map[string][]byte

func readFolder(t *testing.T, dir string) folder {
	t.Helper()
	f := folder{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err == nil {
			f[rel], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// write writes the folder. What is empty at the end of a file, which is most of the log's, takes no
// room on the disk.
func (f folder) write(t *testing.T, dir string) {
	t.Helper()
	for rel, b := range f {
		path := filepath.Join(dir, rel)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, bytes.TrimRight(b, "\x00"), 0o600)
		}
		if err == nil {
			err = os.Truncate(path, int64(len(b)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// damages are ways to damage a folder by name, one file or part of it at a time.
func (f folder) damages(r *rand.Rand, long bool) map[string]func(folder) {
	list := map[string]func(folder){
		"both watermarks removed": func(x folder) { x.removeAll("watermark") },
		"the log removed":         func(x folder) { x.removeAll("logdb-") },
		"the snapshots removed":   func(x folder) { x.removeAll("snapshot-part-") },
		"logs and snapshots removed": func(x folder) {
			x.removeAll("logdb-")
			x.removeAll("snapshot-part-")
		},
		"logs, snapshots and watermarks removed": func(x folder) {
			x.removeAll("logdb-")
			x.removeAll("snapshot-part-")
			x.removeAll("watermark")
		},
		"watermarks removed, the log emptied": func(x folder) { x.cutLog(0) },
		"watermarks removed, the log cut":     func(x folder) { x.cutLog(1) },
		"watermarks and snapshots removed, the log emptied": func(x folder) {
			x.cutLog(0)
			x.removeAll("snapshot-part-")
		},
		"the log but for its folder removed": func(x folder) { x.removeAll("raft" + string(filepath.Separator)) },
	}
	for rel, b := range f {
		if strings.EqualFold(filepath.Base(rel), "lock") {
			continue
		}
		list[rel+" removed"] = func(x folder) { delete(x, rel) }
		written := len(bytes.TrimRight(b, "\x00"))
		if written == 0 {
			continue
		}
		flips := 1
		if long {
			flips = 20
			list[rel+" empty"] = func(x folder) { x[rel] = nil }
		}
		list[rel+" cut"] = func(x folder) { x[rel] = b[:written/2] }
		for range flips {
			at, bit := r.IntN(written), byte(1)<<r.IntN(8)
			list[fmt.Sprintf("%s: bit %08b of byte %d flipped", rel, bit, at)] = func(x folder) {
				x[rel] = bytes.Clone(b)
				x[rel][at] ^= bit
			}
		}
	}
	return list
}

func (f folder) removeAll(part string) {
	for rel := range f {
		if strings.Contains(rel, part) {
			delete(f, rel)
		}
	}
}

// cutLog removes the watermarks, and keeps so many halves of each file of the log.
func (f folder) cutLog(halves int) {
	for rel, b := range f {
		if strings.Contains(rel, "logdb-") {
			f[rel] = b[:len(bytes.TrimRight(b, "\x00"))*halves/2]
		}
	}
	f.removeAll("watermark")
}

// seedFlag is the seed of TestDamagedFolder.
var seedFlag = flag.Uint64("seed", 0, "of TestDamagedFolder: which bytes are damaged; 0: others in each run")

var (
	// saysWhatToDo finds the way back in a sentence.
	saysWhatToDo = regexp.MustCompile(
		`put the (file|whole folder) back|new (data )?folder|give the folder of another instance|remove it|restore a backup`)
	isATrace = regexp.MustCompile(`goroutine \d|runtime error|panic:|\.go:\d`)
)

// TestDamagedFolder damages each file of a data folder, in each of several ways. A server on it has
// all that there was, or does not start, and says in a sentence what is wrong with which file and
// what to do then; reading what is left gives all of it, or such a sentence. There is never a
// panic, and never old data.
func TestDamagedFolder(t *testing.T) {
	form.SkipUntil(t, form.Full, "hundreds of damaged folders; wal.TestDamages has one log")
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	cfg := folderConfig(t, data)
	cfg.Shards, cfg.Buckets, cfg.Cluster = 1, 16, "kept"
	s := serveFolder(t, cfg)
	furnish(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = serveFolder(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	for _, x := range s.Meta.State().Shards() {
		if _, err := s.Host.SnapshotNow(ctx, x.ID); err != nil && !errors.Is(err, replica.ErrNoSnapshot) {
			t.Fatal(err)
		}
	}
	c := connect(t, s)
	c.session(c.node(), 98) // and this is in the log behind the snapshot
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole := readFolder(t, data)
	rescue := fmt.Sprint(digests(t, data))
	want, refused := serveOnce(t, data)
	if refused != "" {
		t.Fatal(refused)
	}

	seed := cmp.Or(*seedFlag, rand.Uint64())
	t.Logf("SIGNALBOX_TEST=full go test ./server/integration -run '^TestDamagedFolder$' -seed %d makes the same damages", seed)
	damages := whole.damages(rand.New(rand.NewPCG(seed, 1)), form.Is(form.Long))
	var names, folders []string
	top := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(damages)) {
		x := maps.Clone(whole)
		damages[name](x)
		dir := filepath.Join(top, fmt.Sprint(len(folders)))
		x.write(t, filepath.Join(dir, "data"))
		names, folders = append(names, name), append(folders, dir)
	}
	list, output := openDamaged(t, folders)
	counts := map[bool]int{}
	for i, o := range list {
		sentence := func(what, text string) {
			t.Helper()
			if isATrace.MatchString(text) || strings.Contains(text, "\n") || !strings.Contains(text, folders[i]) &&
				!strings.Contains(text, "data folder") && !strings.Contains(text, "none of the folders") ||
				!saysWhatToDo.MatchString(text) {
				t.Errorf("%s: %s: not a sentence that names the file and the way back: %s", names[i], what, text)
			}
		}
		switch {
		case output[i] != "":
			t.Errorf("%s: the process ended: %s", names[i], output[i])
			continue
		case o.Refused != "":
			sentence("refused", o.Refused)
		case o.Served != want:
			t.Errorf("%s: what is served is not what there was (-want +got):\n%s", names[i], gocmp.Diff(want, o.Served))
		}
		if o.Rescue != rescue {
			sentence("not read", o.Rescue)
		}
		counts[o.Refused == ""]++
		if testing.Verbose() {
			t.Logf("%s: %s", names[i], cmp.Or(o.Refused, "served"))
		}
	}
	if counts[true] < 10 || counts[false] < 10 {
		t.Errorf("%d were served and %d refused: the test has lost its way", counts[true], counts[false])
	}
}
