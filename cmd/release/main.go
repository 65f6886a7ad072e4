// Command release builds everything that a release consists of: archives, packages, an image,
// their bills of materials, checksums and a signature. The commit, the version and Go's version
// decide every byte of what is not the signature.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/server/release"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	version := flags.String("version", "", "Version to release, such as 1.2.3.")
	folder := flags.String("out", "dist", "Folder for the files; it must be empty, or not exist.")
	key := flags.String("key", "", "Private key of OpenSSH that signs the checksums.")
	snapshot := flags.Bool("snapshot", false, "Build the tree as it is, with a version of its own.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, err := command(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	b := &builder{ctx: ctx, root: root, out: *folder, version: *version, programs: programs, progress: out}
	if b.commit, err = command(ctx, root, "git", "rev-parse", "HEAD"); err != nil {
		return err
	}
	seconds, err := command(ctx, root, "git", "show", "-s", "--format=%ct", "HEAD")
	if err != nil {
		return err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	b.time = time.Unix(unix, 0).UTC()
	if *snapshot {
		b.version = release.TreeVersion + "." + b.commit[:12]
	} else if err := refusals(ctx, root, b.version, release.TreeVersion); err != nil {
		return err
	}
	if err := b.build(); err != nil {
		return err
	}
	if *key != "" {
		if err := b.sign(*key); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%s is in %s\n", b.version, b.out)
	if !*snapshot {
		fmt.Fprintf(out, "tag commit %s as v%s\n", b.commit, b.version)
		for _, module := range importedModules {
			fmt.Fprintf(out, "  and as %s/v%s\n", module, b.version)
		}
	}
	return nil
}

// says prints what is being made.
func (b *builder) says(what string) { fmt.Fprintf(b.progress, "making %s\n", what) }

// build makes all files, and their checksums.
func (b *builder) build() error {
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	if left, err := os.ReadDir(b.out); err != nil || len(left) > 0 {
		return cmp.Or(err, fmt.Errorf("%s is not empty; remove what is in it, or name another folder", b.out))
	}
	var err error
	if b.work, err = os.MkdirTemp("", "signalbox-release-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.work)
	for i := range b.programs {
		if err := b.buildProgram(&b.programs[i]); err != nil {
			return err
		}
	}
	b.says("the chart")
	if err := b.writeChart(); err != nil {
		return err
	}
	b.says("the clients for Python and npm")
	if err := b.writeClients(); err != nil {
		return err
	}
	b.says("the checksums")
	return b.writeSums()
}

func (b *builder) buildProgram(p *program) error {
	completions, err := b.completions(p)
	if err != nil {
		return err
	}
	var images []platformImage
	for _, at := range p.platforms {
		b.says(p.name + " for " + at.String())
		binary, err := b.compile(p, at)
		if err != nil {
			return err
		}
		components, licences, err := b.thirdParties(p, binary.info)
		if err != nil {
			return err
		}
		if err := b.writeBill(p, at, components); err != nil {
			return err
		}
		docs, err := b.readPages(p.docs)
		if err != nil {
			return err
		}
		docs = append(docs, file{"THIRD-PARTY.txt", 0o644, licences})
		if err := b.writeArchive(p, at, binary, append(docs, completions...)); err != nil {
			return err
		}
		if !p.packaged || at.os != "linux" {
			continue
		}
		if err := b.writePackages(p, at, binary, docs, completions); err != nil {
			return err
		}
		images = append(images, platformImage{at, binary.content, docs})
	}
	if len(images) == 0 {
		return nil
	}
	b.says("the image")
	return b.writeImage(images)
}

// command runs a program in a folder, and returns what it prints, without the last newline.
func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, name, args...), dir)
}

func output(cmd *exec.Cmd, dir string) (string, error) {
	var stderr strings.Builder
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(cmd.Path), strings.Join(cmd.Args[1:], " "), err,
			stderr.String())
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}
