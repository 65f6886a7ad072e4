package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

type file struct {
	name    string // with slashes; a folder's ends with one
	mode    int64
	content []byte
}

func (f file) isFolder() bool { return strings.HasSuffix(f.name, "/") }

// readTree reads all files below a folder, and names them from there.
func readTree(folder string) (files []file, err error) {
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			files = append(files, file{filepath.ToSlash(name) + "/", 0o755, nil})
			return nil
		}
		content, err := os.ReadFile(path)
		files = append(files, file{filepath.ToSlash(name), 0o644, content})
		return err
	})
	return files, err
}

// writeTar writes files in the order of their names, owned by root unless owner has another id.
func writeTar(w io.Writer, at time.Time, files []file, owner map[string]int) error {
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	t := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)),
			ModTime: at, Uid: owner[f.name], Gid: owner[f.name], Format: tar.FormatPAX}
		if f.isFolder() {
			h.Typeflag = tar.TypeDir
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.content); err != nil {
			return err
		}
	}
	return t.Close()
}

// writeArchive writes a program with its pages, in one folder.
func (b *builder) writeArchive(p *program, at platform, bin *binary, files []file) error {
	files = append(slices.Clone(files), file{p.name, 0o755, bin.content})
	if p.unit != "" && at.os == "linux" {
		unit, err := b.readAll([]string{p.unit})
		if err != nil {
			return err
		}
		files = append(files, unit...)
	}
	folders := map[string]bool{"": true}
	for _, f := range files {
		folders[strings.TrimSuffix(path.Dir(f.name), ".")] = true
	}
	for i := range files {
		files[i].name = p.name + "_" + b.version + "/" + files[i].name
	}
	for folder := range folders {
		files = append(files, file{path.Join(p.name+"_"+b.version, folder) + "/", 0o755, nil})
	}
	compressed, err := compressedTar(b.time, files)
	if err != nil {
		return err
	}
	if len(compressed) > p.maxArchive {
		return fmt.Errorf("the archive of %s for %s has %d bytes, above the bar of %d; make it smaller, or raise the bar",
			p.name, at, len(compressed), p.maxArchive)
	}
	return b.write(p.name+"_"+b.version+"_"+at.String()+".tar.gz", compressed)
}

func compressedTar(at time.Time, files []file) ([]byte, error) {
	var compressed bytes.Buffer
	z, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if err := writeTar(z, at, files, nil); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return compressed.Bytes(), nil
}

func (b *builder) write(name string, content []byte) error {
	b.written = append(b.written, name)
	return os.WriteFile(filepath.Join(b.out, name), content, 0o644)
}

const sums = "SHA256SUMS"

// writeSums writes the checksums of all files.
func (b *builder) writeSums() error {
	var text strings.Builder
	slices.Sort(b.written)
	for _, name := range b.written {
		content, err := os.ReadFile(filepath.Join(b.out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(content), name)
	}
	return os.WriteFile(filepath.Join(b.out, sums), []byte(text.String()), 0o644)
}

// signers is the file with the public keys whose signatures users accept.
const signers = "server/deploy/allowed_signers"

// sign signs the checksums, and verifies the signature as users do.
func (b *builder) sign(key string) error {
	name := filepath.Join(b.out, sums)
	if _, err := command(b.ctx, ".", "ssh-keygen", "-q", "-Y", "sign", "-n", "signalbox-release", "-f", key,
		name); err != nil {
		return err
	}
	signed, err := os.Open(name)
	if err != nil {
		return err
	}
	defer signed.Close()
	verify := exec.CommandContext(b.ctx, "ssh-keygen", "-Y", "verify", "-f", filepath.Join(b.root, signers),
		"-I", "signalbox-release", "-n", "signalbox-release", "-s", name+".sig")
	verify.Stdin = signed
	if _, err := output(verify, "."); err != nil {
		return fmt.Errorf("the signature is not one that %s allows; commit a line there, \"signalbox-release \" and the public key: %w", signers, err)
	}
	return nil
}
