package fetch

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"sort"
	"strings"
	"time"

	"monopod/watcher"
)

// Registry fetches artifacts.
type Registry interface {
	// Artifact returns what a reference names now; the error is ErrNotModified when that has the digest known. Its layers
	// have limit bytes at most together. It is a *Refusal when there is something that must not be used.
	Artifact(ctx context.Context, reference, known string, limit int64) (*Artifact, error)
	// Close gives back idle connections.
	Close()
}

// Artifact is what a registry has under a reference.
type Artifact struct {
	// Digest is that of its manifest.
	Digest string
	Layers []Layer
}

// Layer is a file of an artifact, or several of them in a tar.
type Layer struct {
	MediaType string
	// Title is its file name, if it has one.
	Title string
	Data  []byte
}

// OCIConfig configures a Remote that asks a registry.
type OCIConfig struct {
	// Reference names the artifact, without a scheme.
	Reference string
	Registry  Registry
	// Timeout is the longest time of a request with all layers; 0 means 10 s.
	Timeout time.Duration
	// MaxSize is the largest size of all layers together, unpacked or not, in bytes; 0 means MaxInput, which is the most.
	MaxSize int
	// Detached is set if one layer is the signature of another layer, which holds all manifests.
	Detached bool
	// The rest is as in RemoteConfig.
	Name   string
	Period time.Duration
	Load   watcher.Loader
	Atomic bool
	Verify Verify
	Copy   *Copy
	Log    *slog.Logger
	Now    func() time.Time
}

// NewOCISource makes a Remote that asks a registry; Run starts it.
func NewOCISource(cfg OCIConfig) *Remote {
	if cfg.Timeout <= 0 {
		cfg.Timeout = httpTimeout
	}
	if cfg.MaxSize <= 0 || cfg.MaxSize > watcher.MaxInput {
		cfg.MaxSize = watcher.MaxInput
	}
	input := "oci://" + cfg.Reference
	return NewRemote(RemoteConfig{
		Name: cfg.Name, Input: input, Place: input, Fetcher: &ociFetcher{cfg, input}, Period: cfg.Period,
		Load: cfg.Load, Atomic: cfg.Atomic, Verify: cfg.Verify, Copy: cfg.Copy, Log: cfg.Log, Now: cfg.Now,
	})
}

type ociFetcher struct {
	cfg  OCIConfig
	name string
}

// Close implements Fetcher.
func (f *ociFetcher) Close() { f.cfg.Registry.Close() }

// Fetch implements Fetcher. The digest of the artifact takes the place of an ETag.
func (f *ociFetcher) Fetch(ctx context.Context, seen Validators) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	a, err := f.cfg.Registry.Artifact(ctx, f.cfg.Reference, seen.ETag, int64(f.cfg.MaxSize))
	switch {
	case errors.Is(err, ErrNotModified):
		return nil, ErrNotModified
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("%s: timeout: no complete answer within %s", f.name, f.cfg.Timeout)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	files, signatures, err := a.files(f.cfg.MaxSize)
	if err != nil {
		return nil, refuse("%s: %w", f.name, err)
	}
	answer := &Answer{Body: join(files), Validators: Validators{ETag: a.Digest}}
	if !f.cfg.Detached {
		return answer, nil
	}
	if len(signatures) != 1 || len(files) != 1 || files[0].packed {
		return nil, refuse("%s: it has %d signatures (%s), and manifests in %s; there must be one signature, and one file of manifests that is not in a tar",
			f.name, len(signatures), signatureSuffix, counted(len(files), "file"))
	}
	answer.Signature = signatures[0]
	return answer, nil
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// file is a file of manifests.
type file struct {
	name   string
	data   []byte
	packed bool
}

// files takes an artifact apart into files of manifests, in the order of its layers and of the names within a tar, and
// signatures. limit is the most that all files may have together.
func (a *Artifact) files(limit int) (files []file, signatures [][]byte, err error) {
	for i, l := range a.Layers {
		switch kind := l.kind(); kind {
		case kindSignature:
			signatures = append(signatures, l.Data)
		case kindManifests:
			files = append(files, file{name: l.Title, data: l.Data})
			limit -= len(l.Data)
		case kindTar:
			packed, err := untar(l.Data, limit)
			if err != nil {
				return nil, nil, fmt.Errorf("layer %d: %w", i+1, err)
			}
			for _, f := range packed {
				limit -= len(f.data)
			}
			files = append(files, packed...)
		default:
			return nil, nil, fmt.Errorf("layer %d %q of type %s is neither manifests (application/yaml, or a name that ends with .yaml, .yml or .json) nor a tar of them", i+1, l.Title, l.MediaType)
		}
		if limit < 0 {
			return nil, nil, errOverLimit
		}
	}
	if len(files) == 0 {
		return nil, nil, errors.New("it contains no manifests")
	}
	return files, signatures, nil
}

var errOverLimit = errors.New("larger than maxSize")

// layerKind selects how a layer is read.
type layerKind int

const (
	kindOther layerKind = iota
	kindManifests
	kindSignature
	kindTar
)

// kind goes by the name first: tools call a file a tar if no media type was given.
func (l *Layer) kind() layerKind {
	switch {
	case strings.HasSuffix(l.Title, signatureSuffix):
		return kindSignature
	case isManifestName(l.Title):
		return kindManifests
	}
	switch l.MediaType {
	case "application/yaml", "application/x-yaml", "text/yaml", "application/json", "application/vnd.dsse.envelope.v1+json":
		return kindManifests
	}
	if base, _, _ := strings.Cut(l.MediaType, "+"); strings.HasSuffix(base, ".tar") || strings.HasSuffix(base, ".tar.gzip") {
		return kindTar
	}
	return kindOther
}

func isManifestName(name string) bool {
	ext := path.Ext(name)
	return ext == ".yaml" || ext == ".yml" || ext == ".json"
}

// untar returns the manifests in a tar, by name; hidden files are none. A tar that is larger than limit is an error.
func untar(data []byte, limit int) ([]file, error) {
	var r io.Reader = bytes.NewReader(data)
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		r = z
	}
	// A tar adds blocks around each file, and there may be many small files.
	const perByte = 4
	bounded := &io.LimitedReader{R: r, N: int64(perByte*limit) + 1<<20}
	in := tar.NewReader(bounded)
	var files []file
	for {
		h, err := in.Next()
		switch {
		case bounded.N <= 0:
			return nil, errOverLimit
		case errors.Is(err, io.EOF):
			sort.SliceStable(files, func(i, j int) bool { return files[i].name < files[j].name })
			return files, nil
		case err != nil:
			return nil, fmt.Errorf("not a complete tar, plain or with gzip: %w", err)
		}
		name := path.Clean(h.Name)
		if h.Typeflag != tar.TypeReg || !isManifestName(name) || strings.HasPrefix(path.Base(name), ".") {
			continue
		}
		if h.Size > int64(limit) {
			return nil, errOverLimit
		}
		content, err := io.ReadAll(in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		limit -= len(content)
		files = append(files, file{name: name, data: content, packed: true})
	}
}

// join makes one stream of documents of files. A single file stays as it is.
func join(files []file) []byte {
	if len(files) == 1 {
		return files[0].data
	}
	var all []byte
	for _, f := range files {
		all = append(all, "---\n"...)
		all = append(all, f.data...)
		all = append(all, '\n')
	}
	return all
}
