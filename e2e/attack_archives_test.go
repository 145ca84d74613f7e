//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"
)

// entry is one of a tar.
type entry struct {
	tar.Header
	body []byte
}

func tarOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if e.Typeflag == 0 {
			e.Typeflag = tar.TypeReg
		}
		if e.Mode == 0 {
			e.Mode = 0o755
		}
		e.Size = int64(len(e.body))
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func tarFile(name string, body []byte) entry { return entry{tar.Header{Name: name}, body} }

// imageArchive is what `docker save` makes of an image with one layer.
func imageArchive(t *testing.T, layer []byte, pad int, more ...entry) []byte {
	t.Helper()
	asJSON := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	config := asJSON(map[string]any{
		"architecture": "amd64", "os": "linux", "config": map[string]any{"Cmd": []string{"/bin/sh"}, "Labels": map[string]string{"pad": strings.Repeat("x", pad)}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest.FromBytes(layer).String()}},
	})
	manifest := asJSON([]map[string]any{{"Config": "config.json", "RepoTags": []string{"monopod.test/hostile:1"}, "Layers": []string{"layer.tar"}}})
	return tarOf(t, append([]entry{tarFile("manifest.json", manifest), tarFile("config.json", config), tarFile("layer.tar", layer)}, more...)...)
}

// diskOfImages is the size of the disk that images are on, in MiB; a bomb has a half more.
const diskOfImages = 256

// bomb is a small compressed tar of a file that the disk has no room for.
func bomb(t *testing.T, name string) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w, size := tar.NewWriter(z), int64(diskOfImages*3/2<<20)
	err = w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: size})
	if err == nil {
		_, err = io.CopyN(w, zeros{}, size)
	}
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// zstdWindow is a compressed file for which a decompressor needs as much memory.
func zstdWindow(t *testing.T, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithWindowSize(size), zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err == nil {
		_, err = io.CopyN(w, zeros{}, int64(size)+1<<20)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// free is how many MiB are free on the disk of a directory.
func free(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize >> 20
}

// hostileArchives are archives by their names; outside is a directory that no image may write to.
func hostileArchives(t *testing.T, outside string) map[string][]byte {
	t.Helper()
	many := 500
	if large() {
		many = 25_000
	}
	climb := strings.Repeat("../", 20) + strings.TrimPrefix(outside, "/")
	var tiny, whiteouts []entry
	for i := range many {
		tiny = append(tiny, tarFile(fmt.Sprintf("f%d", i), []byte{byte(i), byte(i >> 8)}))
		whiteouts = append(whiteouts, tarFile(strings.Repeat("d/", i%50)+fmt.Sprintf(".wh.f%d", i), nil))
	}
	link := func(name, to string, kind byte) entry {
		return entry{tar.Header{Name: name, Linkname: to, Typeflag: kind}, nil}
	}
	good := tarOf(t, tarFile("bin/sh", []byte("#!")))
	whole := imageArchive(t, good, 0)
	return map[string][]byte{
		"slip":      imageArchive(t, tarOf(t, tarFile(climb+"/slip", []byte("x")), tarFile(outside+"/slip", []byte("x"))), 0),
		"links":     imageArchive(t, tarOf(t, link("out", outside, tar.TypeSymlink), tarFile("out/link", []byte("x")), link("hard", "out/../../link", tar.TypeLink)), 0),
		"devices":   imageArchive(t, tarOf(t, entry{tar.Header{Name: "dev/mem", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1}, nil}, entry{tar.Header{Name: "fifo", Typeflag: tar.TypeFifo}, nil}), 0),
		"config":    imageArchive(t, good, 64<<20),
		"tiny":      imageArchive(t, good, 0, tiny...),
		"whiteouts": imageArchive(t, tarOf(t, whiteouts...), 0),
		"twice":     imageArchive(t, good, 0, tarFile("manifest.json", []byte("[]")), tarFile("config.json", []byte("{}")), tarFile("layer.tar", good)),
		"cut":       whole[:len(whole)/2],
		"noise":     bytes.Repeat([]byte("monopod"), 100_000),
		"windows":   zstdWindow(t, 256<<20),
		"values":    tarOf(t, tarFile("manifest.json", []byte("["+strings.Repeat("{},", 2<<20)+"{}]"))),
		"layers":    tarOf(t, tarFile("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)), tarFile("index.json", []byte(`{"manifests":[`+strings.Repeat("{},", 2<<20)+"{}]}"))),
		"bomb":      imageArchive(t, bomb(t, "bin/sh"), 0),
		"blobbomb":  bomb(t, "blob"),
		"manifests": tarOf(t, tarFile("manifest.json", append(bytes.Repeat([]byte("["), 1<<20), ']'))),
	}
}

// TestAttackArchives: no archive among the preloaded images costs the agent more memory than it may take, or writes anything
// outside of what it is unpacked to.
func TestAttackArchives(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	loopDisk(t, root, diskOfImages)
	in := newInstanceIn(t, dir)
	t.Cleanup(in.cleanup)
	a := attack(in)
	outside := filepath.Join(a.dir, "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range hostileArchives(t, outside) {
		a.survives("the archive "+name, func() {
			before := free(t, root)
			a.write(filepath.Join(a.dir, "images", name+".tar"), string(data))
			a.eventually(name+" has been looked at", func() error {
				if !strings.Contains(a.log.String(), "images/"+name+".tar") {
					return fmt.Errorf("nothing is said of it")
				}
				return nil
			})
			if !strings.Contains(name, "bomb") {
				return
			}
			if text := a.log.String(); !strings.Contains(text[strings.Index(text, "images/"+name+".tar"):], "the disk is too full for it") {
				t.Errorf("the archive %s: the disk is not said to be too full for it\n%s", name, a.log.tail())
			}
			a.eventually("what "+name+" took of the disk is free", func() error {
				if now := free(t, root); now < before-16 {
					return fmt.Errorf("%d MiB are free of %d", now, before)
				}
				return nil
			})
		})
		if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
			t.Errorf("the archive %s has written %v, %v", name, left, err)
		}
		if err := os.Remove(filepath.Join(a.dir, "images", name+".tar")); err != nil {
			t.Fatal(err)
		}
	}
}
