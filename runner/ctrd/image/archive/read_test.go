package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// tarOf returns a tar of files by their names.
func tarOf(t *testing.T, files ...[2]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f[0], Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(f[1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func write(t *testing.T, path string, b []byte) string {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func descriptor(content string) ocispec.Descriptor {
	return ocispec.Descriptor{Digest: digest.FromString(content), Size: int64(len(content))}
}

func TestArchivesOfDirectories(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	for _, path := range []string{"b.tar", "a.tgz", ".hidden.tar", "readme.txt"} {
		write(t, filepath.Join(one, path), nil)
	}
	write(t, filepath.Join(two, "0.tar.zst"), nil)
	file := write(t, filepath.Join(two, "file"), nil)
	want := []string{filepath.Join(one, "a.tgz"), filepath.Join(one, "b.tar"), filepath.Join(two, "0.tar.zst")}
	if got, err := List([]string{one, filepath.Join(one, "missing"), two}); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if got, err := List([]string{file, two}); err == nil || !slices.Equal(got, want[2:]) {
		t.Errorf("with a directory that cannot be read: %v, %v", got, err)
	}
}

func TestBlobsAreFoundByTheirDigest(t *testing.T) {
	dir := t.TempDir()
	plain := tarOf(t, [2]string{"manifest.json", "{}"}, [2]string{"blobs/sha256/x", "other"}, [2]string{"blobs/sha256/y", "right"}, [2]string{"z", "right"})
	for name, path := range map[string]string{
		"a tar":             write(t, filepath.Join(dir, "a.tar"), plain),
		"a compressed one":  write(t, filepath.Join(dir, "a.tar.gz"), gzipped(t, plain)),
		"with another name": write(t, filepath.Join(dir, "b.tar"), gzipped(t, plain)),
	} {
		to, err := os.OpenFile(write(t, filepath.Join(dir, "to"), []byte("what was here before")), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := FindBlob(t.Context(), path, descriptor("right"), to); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if b, err := os.ReadFile(to.Name()); err != nil || string(b) != "right" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		if err := FindBlob(t.Context(), path, descriptor("wrong"), to); !errors.Is(err, errNoBlob) {
			t.Errorf("%s: a blob of the same size: %v", name, err)
		}
		if err := to.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := FindBlob(t.Context(), filepath.Join(dir, "missing.tar"), descriptor("right"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing archive: %v", err)
	}
	half := write(t, filepath.Join(dir, "half.tar"), plain[:1538])
	if err := FindBlob(t.Context(), half, descriptor("right"), nil); err == nil || errors.Is(err, errNoBlob) {
		t.Errorf("half of an archive: %v", err)
	}
}

func TestABlobThatIsLongerThanItsDescriptorIsNotTaken(t *testing.T) {
	to, err := os.Create(filepath.Join(t.TempDir(), "to"))
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if err := CopyBlob(to, bytes.NewReader([]byte("content and more")), descriptor("content")); err == nil {
		t.Error("it was taken")
	}
	if err := CopyBlob(to, bytes.NewReader([]byte("content")), descriptor("content")); err != nil {
		t.Errorf("the right one afterwards: %v", err)
	}
}

func TestReadingStopsWithTheContext(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "a.tar"), tarOf(t, [2]string{"a", "content"}))
	ctx, cancel := context.WithCancel(t.Context())
	a, err := Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := io.ReadFull(a, make([]byte, 512)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := a.Read(make([]byte, 512)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
