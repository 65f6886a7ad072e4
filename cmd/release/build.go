package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"time"
)

// builder makes the files of one release.
type builder struct {
	ctx      context.Context
	root     string // of the repository
	out      string
	work     string // for what is not kept
	version  string
	commit   string
	time     time.Time // of the commit; all files have it
	programs []program
	written  []string // names of the files in out
	progress io.Writer
}

type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "_" + p.arch }

var (
	linux = []platform{{"linux", "amd64"}, {"linux", "arm64"}}
	all   = append(linux[:2:2], platform{"darwin", "arm64"})
)

// program is a binary with an archive for each platform.
type program struct {
	name        string
	module      string // folder of its module
	main        string // its package, seen from there
	platforms   []platform
	docs        []string // from the root
	unit        string   // of systemd, for Linux
	completions bool
	packaged    bool // in packages for Linux, and in the image

	maxBinary, maxArchive int // bytes
}

var programs = []program{
	{name: "signalbox", module: ".", main: "./cmd/signalbox", platforms: all,
		docs: []string{"README.md", "CHANGELOG.md", "cmd/signalbox/REFERENCE.md", "LICENSE"},
		unit: "server/deploy/signalbox.service", completions: true, packaged: true,
		maxBinary: 35e6, maxArchive: 13.5e6},
	{name: "signalbox-ydb", module: "cmd/signalbox-ydb", main: ".", platforms: linux,
		docs:      []string{"cmd/signalbox-ydb/README.md", "LICENSE"},
		maxBinary: 17.5e6, maxArchive: 6.5e6},
	{name: "signalbox-mcp", module: "cmd/signalbox-mcp", main: ".", platforms: all,
		docs:      []string{"cmd/signalbox-mcp/README.md", "LICENSE"},
		maxBinary: 17.5e6, maxArchive: 6.5e6},
}

// environment fixes everything beside the source that Go's compiler and linker go by.
var environment = []string{
	"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off", "GODEBUG=",
}

type binary struct {
	content []byte
	info    *buildinfo.BuildInfo
}

// compile builds a program. What Go would record of the repository depends on tags, so it records
// nothing, and the linker writes it.
func (b *builder) compile(p *program, at platform) (*binary, error) {
	const stamp = " -X github.com/signalbox-dev/signalbox/server/release."
	name := filepath.Join(b.work, p.name+"_"+at.String())
	cmd := exec.CommandContext(b.ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w"+
		stamp+"version="+b.version+stamp+"commit="+b.commit+stamp+"commitTime="+b.time.Format(time.RFC3339), "-o", name, p.main)
	cmd.Env = append(append(os.Environ(), environment...), "GOOS="+at.os, "GOARCH="+at.arch)
	if _, err := output(cmd, filepath.Join(b.root, p.module)); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if len(content) > p.maxBinary {
		return nil, fmt.Errorf("%s for %s has %d bytes, above the bar of %d; make it smaller, or raise the bar",
			p.name, at, len(content), p.maxBinary)
	}
	info, err := buildinfo.Read(bytes.NewReader(content))
	return &binary{content, info}, err
}

// completions returns the scripts for shells, which this machine's binary prints.
func (b *builder) completions(p *program) ([]file, error) {
	if !p.completions {
		return nil, nil
	}
	b.says("the completions of " + p.name)
	at := platform{runtime.GOOS, runtime.GOARCH}
	if _, err := b.compile(p, at); err != nil {
		return nil, err
	}
	var files []file
	for _, shell := range []string{"bash", "fish", "zsh"} {
		text, err := command(b.ctx, b.work, filepath.Join(b.work, p.name+"_"+at.String()), "completion", shell)
		if err != nil {
			return nil, err
		}
		files = append(files, file{"completions/" + p.name + "." + shell, 0o644, []byte(text + "\n")})
	}
	return files, nil
}

// readAll reads files of the repository, which lose their folders.
func (b *builder) readAll(names []string) (files []file, err error) {
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(b.root, name))
		if err != nil {
			return nil, err
		}
		files = append(files, file{path.Base(name), 0o644, content})
	}
	return files, nil
}
