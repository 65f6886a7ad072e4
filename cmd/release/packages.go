package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers itself
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers itself
)

// packageFiles is where texts and scripts of packages are.
const packageFiles = "server/deploy/packages"

// writePackages writes a program's packages for Debian and for RPM.
func (b *builder) writePackages(p *program, at platform, bin *binary, docs, completions []file) error {
	unit, err := b.readAll([]string{p.unit, packageFiles + "/" + p.name + ".env", packageFiles + "/needrestart.conf"})
	if err != nil {
		return err
	}
	service := []byte(strings.ReplaceAll(string(unit[0].content), "/usr/local/bin/", "/usr/bin/"))
	contents := []file{
		{"/usr/bin/" + p.name, 0o755, bin.content},
		{"/usr/lib/systemd/system/" + p.name + ".service", 0o644, service},
		{"/etc/" + p.name + "/" + p.name + ".env", 0o640, unit[1].content},
		{"/etc/needrestart/conf.d/" + p.name + ".conf", 0o644, unit[2].content},
	}
	for _, f := range docs {
		contents = append(contents, file{"/usr/share/doc/" + p.name + "/" + f.name, f.mode, f.content})
	}
	for _, x := range []struct {
		format, name string
		zsh          string // where completions belong
	}{
		{"deb", p.name + "_" + b.version + "_" + at.arch + ".deb", "vendor-completions"},
		{"rpm", p.name + "-" + b.version + "-1." + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[at.arch] + ".rpm", "site-functions"},
	} {
		all := contents
		for i, to := range []string{"bash-completion/completions/" + p.name,
			"fish/vendor_completions.d/" + p.name + ".fish", "zsh/" + x.zsh + "/_" + p.name} {
			all = append(all, file{"/usr/share/" + to, 0o644, completions[i].content})
		}
		content, err := b.pack(p, at, x.format, all)
		if err != nil {
			return err
		}
		if err := b.write(x.name, content); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) pack(p *program, at platform, format string, contents []file) ([]byte, error) {
	info := &nfpm.Info{
		Name: p.name, Arch: at.arch, Platform: at.os, Version: b.version, Release: "1", MTime: b.time,
		Section: "net", Priority: "optional", Maintainer: "The signalbox maintainers", License: "Apache-2.0",
		Description: "Coordination server\nLocks, elections, service discovery and small configuration for the\nprocesses of a fleet, as a raft cluster.",
		Overridables: nfpm.Overridables{
			RPM: nfpm.RPM{BuildHost: "signalbox", Summary: "Coordination server"},
			Scripts: nfpm.Scripts{
				PostInstall: filepath.Join(b.root, packageFiles, "postinstall.sh"),
				PreRemove:   filepath.Join(b.root, packageFiles, "preremove.sh"),
				PostRemove:  filepath.Join(b.root, packageFiles, "postremove.sh"),
			},
		},
	}
	for i, f := range contents {
		source := filepath.Join(b.work, fmt.Sprintf("content-%d", i))
		if err := os.WriteFile(source, f.content, 0o600); err != nil {
			return nil, err
		}
		kind := files.TypeFile
		if strings.HasPrefix(f.name, "/etc/") {
			kind = files.TypeConfigNoReplace
		}
		info.Contents = append(info.Contents, &files.Content{Source: source, Destination: f.name, Type: kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: os.FileMode(f.mode), MTime: b.time}})
	}
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return nil, err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	err = packager.Package(info, &content)
	return content.Bytes(), err
}
