package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// metadata describes the client for Python to installers, as its pyproject.toml does.
func metadata(project []byte, version string) []byte {
	text := "Metadata-Version: 2.1\nName: signalbox\nVersion: " + version + "\nLicense: Apache-2.0\n"
	for _, key := range [][2]string{{"Summary", "description"}, {"Requires-Python", "requires-python"}} {
		if found := regexp.MustCompile(key[1] + ` = "(.*)"`).FindSubmatch(project); found != nil {
			text += key[0] + ": " + string(found[1]) + "\n"
		}
	}
	return []byte(text)
}

// writeWheel packs the client for Python as installers want it: nothing of it is run to install it.
// The files are those of the source archive, below a folder with the version.
func (b *builder) writeWheel(files []file, about []byte, version string) error {
	info := "signalbox-" + version + ".dist-info/"
	var packed bytes.Buffer
	var record strings.Builder
	z := zip.NewWriter(&packed)
	add := func(name string, content []byte) error {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: b.time})
		if err == nil {
			_, err = w.Write(content)
		}
		sum := sha256.Sum256(content)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(content))
		return err
	}
	for _, f := range files {
		_, name, _ := strings.Cut(f.name, "/")
		if path.Dir(name) == "." { // the licence
			name = info + name
		}
		if err := add(name, f.content); err != nil {
			return err
		}
	}
	wheel := "Wheel-Version: 1.0\nGenerator: signalbox\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
	for _, f := range []file{{"METADATA", 0, about}, {"WHEEL", 0, []byte(wheel)}} {
		if err := add(info+f.name, f.content); err != nil {
			return err
		}
	}
	if err := add(info+"RECORD", []byte(record.String()+info+"RECORD,,\n")); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return b.write("signalbox-"+version+"-py3-none-any.whl", packed.Bytes())
}
