package main

import (
	"bytes"
	"fmt"
	"path"
	"strings"
)

// clients are the clients for other languages: each is an archive that its installer takes.
var clients = []struct {
	archive string // its name, with the version
	folder  string // in the archive, with the version
	version string // the line with the version of the tree, and of the release
	files   []string
}{
	{"signalbox_%s_python.tar.gz", "signalbox-%s", `version = "%s"`,
		[]string{"client/python/pyproject.toml", "client/python/signalbox/__init__.py",
			"client/python/signalbox/aio.py", "client/python/signalbox/py.typed"}},
	{"signalbox_%s_npm.tgz", "package", `"version": "%s"`,
		[]string{"client/js/package.json", "client/js/signalbox.js", "client/js/signalbox.d.ts",
			"client/js/signalbox.ts"}},
}

// writeClients packs the clients, with the release's version.
func (b *builder) writeClients() error {
	for _, c := range clients {
		version := b.version
		if strings.HasSuffix(c.archive, ".tar.gz") { // Python takes other versions
			version = strings.Replace(version, "-dev.", "+dev.", 1)
		}
		files, err := b.readAll(append(c.files, "LICENSE"))
		if err != nil {
			return fmt.Errorf("pack a client: %w", err)
		}
		at := strings.Replace(c.folder, "%s", version, 1)
		for i := range files {
			f := &files[i]
			if i < len(c.files) {
				f.name = strings.TrimPrefix(c.files[i], path.Dir(c.files[0])+"/")
			}
			if i == 0 {
				former := fmt.Appendf(nil, c.version, "0.0.0")
				if bytes.Count(f.content, former) != 1 {
					return fmt.Errorf("%s has not the line %s once", c.files[0], former)
				}
				f.content = bytes.Replace(f.content, former, fmt.Appendf(nil, c.version, version), 1)
			}
			f.name = at + "/" + f.name
		}
		if at != "package" {
			about := metadata(files[0].content, version)
			if err := b.writeWheel(files[1:], about, version); err != nil {
				return err
			}
			files = append(files, file{at + "/PKG-INFO", 0o644, about})
		}
		packed, err := compressedTar(b.time, files)
		if err != nil {
			return err
		}
		if err := b.write(fmt.Sprintf(c.archive, b.version), packed); err != nil {
			return err
		}
	}
	return nil
}
