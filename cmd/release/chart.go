package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
)

const chart = "server/deploy/chart"

// chartVersion are the lines of Chart.yaml with the versions of the chart and of its image.
var chartVersion = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

// writeChart packs the chart, with the release's version. Its links to files of other folders
// become those files.
func (b *builder) writeChart() error {
	files, err := readTree(filepath.Join(b.root, chart))
	if err != nil {
		return fmt.Errorf("pack the chart: %w", err)
	}
	files = slices.DeleteFunc(files, file.isFolder)
	for i, f := range files {
		if f.name == "Chart.yaml" {
			if n := len(chartVersion.FindAll(f.content, -1)); n != 2 {
				return fmt.Errorf("%s/%s has %d versions; give it version and appVersion", chart, f.name, n)
			}
			files[i].content = chartVersion.ReplaceAll(f.content, []byte("${1}: "+b.version))
		}
		files[i].name = "signalbox/" + f.name
	}
	packed, err := compressedTar(b.time, files)
	if err != nil {
		return err
	}
	return b.write("signalbox-"+b.version+".tgz", packed)
}
