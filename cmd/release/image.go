package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// dockerfile says how the image runs, for those who build it themselves and for us.
const dockerfile = "server/deploy/Dockerfile"

// user is the one that the image's process runs as.
const user = 65532

type platformImage struct {
	platform platform
	binary   []byte
	docs     []file
}

// writeImage writes one image for all platforms: an OCI layout with an index, and what makes
// `docker load` take it as well, which knows one platform under a name.
func (b *builder) writeImage(images []platformImage) error {
	text, err := os.ReadFile(filepath.Join(b.root, dockerfile))
	if err != nil {
		return err
	}
	config, err := imageConfig(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", dockerfile, err)
	}
	config.Labels = map[string]string{
		"org.opencontainers.image.title": "signalbox", "org.opencontainers.image.version": b.version,
		"org.opencontainers.image.revision": b.commit, "org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.description": "Coordination server",
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var loads tarball.Manifest
	for _, x := range images {
		image, err := b.image(x, config)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: x.platform.os, Architecture: x.platform.arch}}})
		manifest, err := image.Manifest()
		if err != nil {
			return err
		}
		loads = append(loads, tarball.Descriptor{
			Config: blob(manifest.Config.Digest), RepoTags: []string{"signalbox:" + b.version + "-" + x.platform.arch},
			Layers: []string{blob(manifest.Layers[0].Digest)},
		})
	}
	dir := filepath.Join(b.work, "image")
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := at.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": b.version})); err != nil {
		return err
	}
	manifest, err := json.Marshal(loads)
	if err != nil {
		return err
	}
	files, err := readTree(dir)
	if err != nil {
		return err
	}
	var all bytes.Buffer
	if err := writeTar(&all, b.time, append(files, file{"manifest.json", 0o644, manifest}), nil); err != nil {
		return err
	}
	return b.write("signalbox_"+b.version+"_image.tar", all.Bytes())
}

func blob(digest v1.Hash) string { return "blobs/" + digest.Algorithm + "/" + digest.Hex }

// image makes a platform's image, of one layer.
func (b *builder) image(x platformImage, config *v1.Config) (v1.Image, error) {
	files := []file{
		{"signalbox", 0o755, x.binary},
		{"data/", 0o700, nil},
		{"etc/", 0o755, nil},
		{"etc/passwd", 0o644, fmt.Appendf(nil, "root:x:0:0:root:/:/\nsignalbox:x:%d:%[1]d:signalbox:/data:/\n", user)},
		{"etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\nsignalbox:x:%d:\n", user)},
	}
	for _, f := range x.docs {
		if f.name == "LICENSE" || f.name == "THIRD-PARTY.txt" {
			files = append(files, f)
		}
	}
	var content bytes.Buffer
	if err := writeTar(&content, b.time, files, map[string]int{"data/": user}); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	made := v1.Time{Time: b.time}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: made, Comment: "made from nothing"}})
	if err != nil {
		return nil, err
	}
	full, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	full = full.DeepCopy()
	full.OS, full.Architecture, full.Created, full.Config = x.platform.os, x.platform.arch, made, *config
	return mutate.ConfigFile(image, full)
}

// imageConfig reads how the last stage of a Dockerfile runs. What puts files there is not its
// matter.
func imageConfig(text string) (*v1.Config, error) {
	stage := text[strings.LastIndex(text, "\nFROM ")+1:]
	config := &v1.Config{ExposedPorts: map[string]struct{}{}, Volumes: map[string]struct{}{}}
	for line := range strings.Lines(stage) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		var err error
		switch word {
		case "", "#", "FROM", "COPY":
		case "USER":
			config.User = rest
		case "ENV":
			config.Env = append(config.Env, strings.Fields(rest)...)
		case "VOLUME":
			config.Volumes[rest] = struct{}{}
		case "EXPOSE":
			for _, port := range strings.Fields(rest) {
				config.ExposedPorts[port+"/tcp"] = struct{}{}
			}
		case "STOPSIGNAL":
			config.StopSignal = rest
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(rest), &config.Entrypoint)
		case "CMD":
			err = json.Unmarshal([]byte(rest), &config.Cmd)
		default:
			err = fmt.Errorf("the instruction %s is not known; teach it imageConfig", word)
		}
		if err != nil {
			return nil, err
		}
	}
	return config, nil
}
