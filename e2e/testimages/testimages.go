// Package testimages makes container images for tests from busybox-static, as archives and in a registry on
// 127.0.0.1, because tests have no registry to pull from. For tests only.
//
// The image: /bin/busybox with links for all its applets (/bin/sh, /bin/sleep, ...), /etc/passwd (root:0:0,
// daemon:1:1, app:1000:1000 with home /home/app), /etc/group (root:0, daemon:1, audio:29 with app, app:1000,
// extra:2000 with app and root), /tmp, and Cmd ["sh"].
package testimages

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const busybox = "/bin/busybox"

const passwd = `root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/:/bin/false
app:x:1000:1000:app:/home/app:/bin/sh
`

const group = `root:x:0:
daemon:x:1:
audio:x:29:app
app:x:1000:
extra:x:2000:app,root
`

// Busybox returns the image described above, with additional files. edit, which may be nil, changes its config, e.g. User or Env.
func Busybox(tb testing.TB, edit func(*v1.Config), more ...File) v1.Image {
	tb.Helper()
	return FromFiles(tb, append(busyboxFiles(tb), more...), edit)
}

// File is one entry of an image's only layer.
type File struct {
	Path string
	// Content of a regular file; nil for a directory.
	Content []byte
	// Link makes it a symlink.
	Link string
	Mode fs.FileMode
	// UID and GID are its owner.
	UID, GID int
}

// FromFiles returns an image for this machine's platform with the given files.
func FromFiles(tb testing.TB, files []File, edit func(*v1.Config)) v1.Image {
	tb.Helper()
	raw := layerTar(tb, files)
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(raw)), nil
	}, tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	check(tb, err)
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.AppendLayers(base, layer)
	check(tb, err)
	cf, err := img.ConfigFile()
	check(tb, err)
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", goarch()
	cf.Config.Env = []string{"PATH=/bin"}
	cf.Config.Cmd = []string{"sh"}
	if edit != nil {
		edit(&cf.Config)
	}
	img, err = mutate.ConfigFile(img, cf)
	check(tb, err)
	return img
}

// Archive writes an OCI archive with one busybox image under all these names to path. Compression follows
// the file name: .tar, .tar.gz, .tgz or .tar.zst. The file appears complete or not at all.
func Archive(tb testing.TB, path string, names ...string) {
	tb.Helper()
	ArchiveOf(tb, path, Busybox(tb, nil), names...)
}

// ArchiveOf is Archive for a given image. The names become org.opencontainers.image.ref.name unchanged; without names, that annotation is
// omitted.
func ArchiveOf(tb testing.TB, path string, img v1.Image, names ...string) {
	tb.Helper()
	dir := tb.TempDir()
	l, err := layout.Write(dir, empty.Index)
	check(tb, err)
	if len(names) == 0 {
		check(tb, l.AppendImage(img))
	}
	for _, n := range names {
		check(tb, l.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": n})))
	}
	placeLayout(tb, path, dir)
}

// Part is a file of an OCI artifact.
type Part struct {
	MediaType types.MediaType
	// Title is its name.
	Title, Content string
}

// Artifact writes an OCI archive with an artifact, which is no image: its config is empty.
func Artifact(tb testing.TB, path, name string, parts ...Part) {
	tb.Helper()
	dir := tb.TempDir()
	l, err := layout.Write(dir, empty.Index)
	check(tb, err)
	blob := func(mediaType types.MediaType, content []byte) v1.Descriptor {
		hash, size, err := v1.SHA256(bytes.NewReader(content))
		check(tb, err)
		check(tb, l.WriteBlob(hash, io.NopCloser(bytes.NewReader(content))))
		return v1.Descriptor{MediaType: mediaType, Digest: hash, Size: size}
	}
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: blob("application/vnd.oci.empty.v1+json", []byte("{}"))}
	for _, p := range parts {
		d := blob(p.MediaType, []byte(p.Content))
		d.Annotations = map[string]string{"org.opencontainers.image.title": p.Title}
		m.Layers = append(m.Layers, d)
	}
	raw, err := json.Marshal(m)
	check(tb, err)
	d := blob(types.OCIManifestSchema1, raw)
	d.Annotations = map[string]string{"org.opencontainers.image.ref.name": name}
	check(tb, l.AppendDescriptor(d))
	placeLayout(tb, path, dir)
}

// placeLayout writes the directory of an OCI layout as an archive.
func placeLayout(tb testing.TB, path, dir string) {
	tb.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	check(tb, w.AddFS(os.DirFS(dir)))
	check(tb, w.Close())
	place(tb, path, compress(tb, path, buf.Bytes()))
}

// DockerArchive writes the old format of `docker save`: manifest.json with RepoTags.
func DockerArchive(tb testing.TB, path string, names ...string) {
	tb.Helper()
	refs := map[name.Reference]v1.Image{}
	img := Busybox(tb, nil)
	for _, n := range names {
		ref, err := name.NewTag(n)
		check(tb, err)
		refs[ref] = img
	}
	var buf bytes.Buffer
	check(tb, tarball.MultiRefWrite(refs, &buf))
	place(tb, path, compress(tb, path, buf.Bytes()))
}

// place writes content to a temporary name and renames it to path.
func place(tb testing.TB, path string, content []byte) {
	tb.Helper()
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	check(tb, os.WriteFile(tmp, content, 0o600))
	check(tb, os.Rename(tmp, path))
}

// Registry runs an empty registry on 127.0.0.1 until the test ends and returns its address (host:port).
func Registry(tb testing.TB) string {
	tb.Helper()
	return serve(tb, registry.New(registry.Logger(discardLog())))
}

// AuthRegistry is Registry behind basic authentication.
func AuthRegistry(tb testing.TB, user, password string) string {
	tb.Helper()
	reg := registry.New(registry.Logger(discardLog()))
	return serve(tb, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); !ok || u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		reg.ServeHTTP(w, r)
	}))
}

func serve(tb testing.TB, h http.Handler) string {
	tb.Helper()
	srv := httptest.NewServer(h)
	tb.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

// Push puts an image into a registry: ref is "<address>/<name>:<tag>".
func Push(tb testing.TB, ref string, img v1.Image, opts ...remote.Option) {
	tb.Helper()
	r, err := name.ParseReference(ref, name.Insecure)
	check(tb, err)
	check(tb, remote.Write(r, img, opts...))
}

func busyboxFiles(tb testing.TB) []File {
	tb.Helper()
	bin, err := os.ReadFile(busybox)
	if err != nil {
		tb.Fatalf("%v: tests make their images from it; apt-get install busybox-static", err)
	}
	files := []File{
		{Path: "bin", Mode: 0o755},
		{Path: "etc", Mode: 0o755},
		{Path: "home", Mode: 0o755},
		{Path: "home/app", Mode: 0o755},
		{Path: "root", Mode: 0o700},
		{Path: "tmp", Mode: 0o777 | fs.ModeSticky},
		{Path: "var", Mode: 0o755},
		{Path: "proc", Mode: 0o555},
		{Path: "sys", Mode: 0o555},
		{Path: "dev", Mode: 0o755},
		{Path: "etc/passwd", Content: []byte(passwd), Mode: 0o644},
		{Path: "etc/group", Content: []byte(group), Mode: 0o644},
		{Path: "bin/busybox", Content: bin, Mode: 0o755},
	}
	list, err := exec.CommandContext(tb.Context(), busybox, "--list").Output()
	check(tb, err)
	for applet := range strings.FieldsSeq(string(list)) {
		if applet != "busybox" {
			files = append(files, File{Path: "bin/" + applet, Link: "busybox", Mode: 0o777})
		}
	}
	return files
}

func layerTar(tb testing.TB, files []File) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		h := &tar.Header{Name: f.Path, Mode: int64(f.Mode.Perm()), Uid: f.UID, Gid: f.GID, ModTime: time.Unix(1, 0), Format: tar.FormatPAX}
		switch {
		case f.Link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
		case f.Content == nil:
			h.Typeflag, h.Name = tar.TypeDir, f.Path+"/"
		default:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(f.Content))
		}
		if f.Mode&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
		if f.Mode&fs.ModeSetuid != 0 {
			h.Mode |= 0o4000
		}
		check(tb, w.WriteHeader(h))
		_, err := w.Write(f.Content)
		check(tb, err)
	}
	check(tb, w.Close())
	return buf.Bytes()
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
