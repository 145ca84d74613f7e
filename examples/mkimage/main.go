// mkimage packs one static program into an OCI archive: no registry, no builder, no base image.
//
//	mkimage -o hello.tar -name monopod.dev/hello:1 path/to/program
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	out := flag.String("o", "", "archive to write")
	ref := flag.String("name", "", "name of the image, e.g. monopod.dev/hello:1")
	flag.Parse()
	if err := run(*out, *ref, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

func run(out, ref string, args []string) error {
	if out == "" || ref == "" || len(args) != 1 {
		return errors.New("usage: mkimage -o ARCHIVE -name REFERENCE PROGRAM")
	}
	tag, err := name.NewTag(ref)
	if err != nil {
		return err
	}
	img, err := image(args[0])
	if err != nil {
		return err
	}
	return archive(out, tag, img)
}

// archive writes an OCI image layout as one tar file.
func archive(out string, tag name.Tag, img v1.Image) error {
	dir, err := os.MkdirTemp("", "mkimage-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	index, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("write layout: %w", err)
	}
	names := layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          tag.Name(),
		"org.opencontainers.image.ref.name": tag.TagStr(),
	})
	if err := index.AppendImage(img, names); err != nil {
		return fmt.Errorf("write layout: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	// A reader that watches the folder must never see half an archive.
	tmp := filepath.Join(filepath.Dir(out), "."+filepath.Base(out))
	if err := pack(tmp, dir); err != nil {
		return fmt.Errorf("write %s: %w", tmp, err)
	}
	return os.Rename(tmp, out)
}

func pack(out, dir string) error {
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		return err
	}
	return errors.Join(w.Close(), f.Sync())
}

// image has one layer: the program at /bin, and the little that programs expect of a root directory.
func image(program string) (v1.Image, error) {
	layer, err := rootfs(program)
	if err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil })
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return nil, err
	}
	cf, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", runtime.GOARCH
	cf.Config.Entrypoint = []string{"/bin/" + filepath.Base(program)}
	return mutate.ConfigFile(img, cf)
}

func rootfs(program string) ([]byte, error) {
	body, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, d := range []string{"bin/", "etc/", "tmp/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: d, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	files := []struct {
		name string
		mode int64
		body []byte
	}{
		{"bin/" + filepath.Base(program), 0o755, body},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		{"etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\n")},
	}
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.body))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.body); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}
