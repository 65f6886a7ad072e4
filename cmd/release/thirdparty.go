package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/licensecheck"
)

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]es?|copying|unlicense|notice|patents)([.-].*)?$`)

// recognised is the least share of a file, in hundredths, that must be the text of a known licence.
const recognised = 75

// thirdParties returns the modules in a binary, with their licences, and all texts of these. A
// module without a licence that is known is an error.
func (b *builder) thirdParties(p *program, info *buildinfo.BuildInfo) ([]cyclonedx.Component, []byte, error) {
	args := []string{"list", "-m", "-f", "{{.Path}} {{.Dir}}"}
	for _, dep := range info.Deps {
		args = append(args, dep.Path)
	}
	dirs := map[string]string{}
	if len(info.Deps) > 0 {
		list, err := command(b.ctx, filepath.Join(b.root, p.module), "go", args...)
		if err != nil {
			return nil, nil, err
		}
		for line := range strings.Lines(list) {
			path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
			dirs[path] = dir
		}
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s is linked with what follows, under the licences of each.\n", p.name)
	goroot, err := command(b.ctx, b.root, "go", "env", "GOROOT")
	if err != nil {
		return nil, nil, err
	}
	if _, err := appendLicence(&text, "Go's standard library", info.GoVersion, goroot); err != nil {
		return nil, nil, err
	}
	var components []cyclonedx.Component
	for _, dep := range info.Deps {
		version := dep.Version
		if dep.Replace != nil && strings.HasPrefix(dep.Replace.Path, "../") {
			version = "v" + b.version // of this repository
		} else if dep.Replace != nil {
			return nil, nil, fmt.Errorf("%s has module %s replaced by %s; require that one", p.name, dep.Path,
				dep.Replace.Path)
		}
		licences, err := appendLicence(&text, dep.Path, version, dirs[dep.Path])
		if err != nil {
			return nil, nil, err
		}
		c := cyclonedx.Component{
			Type: cyclonedx.ComponentTypeLibrary, Name: dep.Path, Version: version, PackageURL: "pkg:golang/" + dep.Path + "@" + version,
			Licenses: &cyclonedx.Licenses{},
		}
		c.BOMRef = c.PackageURL
		for _, id := range licences {
			*c.Licenses = append(*c.Licenses, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: id}})
		}
		components = append(components, c)
	}
	return components, text.Bytes(), nil
}

// appendLicence appends the licence files of a module, and returns the SPDX ids of its licences.
func appendLicence(text *bytes.Buffer, name, version, dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("the source of %s: %w", name, err)
	}
	var ids []string
	for _, e := range entries {
		if !licenceFile.MatchString(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if found := licensecheck.Scan(content); found.Percent >= recognised {
			for _, m := range found.Match {
				ids = append(ids, m.ID)
			}
		}
		fmt.Fprintf(text, "\n%s\n%s %s, %s\n\n%s\n", strings.Repeat("-", 80), name, version, e.Name(),
			bytes.TrimSpace(content))
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%s %s has no licence that is known in %s; do without it, or ask its authors",
			name, version, dir)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// writeBill writes the bill of materials of a binary. It has neither a number nor a time.
func (b *builder) writeBill(p *program, at platform, components []cyclonedx.Component) error {
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		Type: cyclonedx.ComponentTypeApplication, BOMRef: p.name, Name: p.name, Version: b.version,
		Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	}}
	bom.Components = &components
	var text bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom,
		cyclonedx.SpecVersion1_6); err != nil {
		return err
	}
	return b.write(p.name+"_"+b.version+"_"+at.String()+".cdx.json", text.Bytes())
}
