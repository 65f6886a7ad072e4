package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

const chart = "server/deploy/chart"

// chartVersion are the lines of Chart.yaml with the versions of the chart and of its image.
var chartVersion = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

// writeChart packs the chart, with the release's version. Its links to files of other folders
// become those files.
func (b *builder) writeChart() error {
	var files []file
	folder := filepath.Join(b.root, chart)
	err := filepath.WalkDir(folder, func(path string, x fs.DirEntry, err error) error {
		if err != nil || x.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if name == "Chart.yaml" {
			if n := len(chartVersion.FindAll(content, -1)); n != 2 {
				return fmt.Errorf("%s has %d versions; give it version and appVersion", path, n)
			}
			content = chartVersion.ReplaceAll(content, []byte("${1}: "+b.version))
		}
		files = append(files, file{"signalbox/" + filepath.ToSlash(name), 0o644, content})
		return nil
	})
	if err != nil {
		return fmt.Errorf("pack the chart: %w", err)
	}
	packed, err := compressedTar(b.time, files)
	if err != nil {
		return err
	}
	return b.write("signalbox-"+b.version+".tgz", packed)
}
