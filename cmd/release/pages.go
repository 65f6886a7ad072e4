package main

import (
	"path"
	"regexp"
	"strings"
)

// source is where the repository is read.
const source = "https://github.com/signalbox-dev/signalbox"

// link matches the target of a link to a file of the repository, and what is behind its path.
var link = regexp.MustCompile(`(!?)(\[[^\]]*\]\()([^()#:\s]+)(#[^()\s]*)?\)`)

// readPages is readAll of pages, whose links lead somewhere outside of the repository too: to a file
// beside them, or to that of the commit.
func (b *builder) readPages(names []string) ([]file, error) {
	files, err := b.readAll(names)
	beside := map[string]string{}
	for _, name := range names {
		beside[name] = path.Base(name)
	}
	for i := range files {
		if f := &files[i]; strings.HasSuffix(f.name, ".md") {
			f.content = link.ReplaceAllFunc(f.content, func(text []byte) []byte {
				x := link.FindSubmatch(text)
				to := path.Join(path.Dir(names[i]), string(x[3]))
				kind := "/blob/"
				if len(x[1]) > 0 {
					kind = "/raw/" // a picture
				}
				target, ok := beside[to]
				if !ok {
					target = source + kind + b.commit + "/" + to
				}
				return []byte(string(x[1]) + string(x[2]) + target + string(x[4]) + ")")
			})
		}
	}
	return files, err
}
