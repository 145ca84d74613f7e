//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"
)

// entry is a tar entry.
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

func jsonOf(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// imageConfig is the configuration of an image with a layer, repeated; field is an additional field of the container configuration.
func imageConfig(t *testing.T, layer []byte, times int, field string, value any) []byte {
	t.Helper()
	diffs := slices.Repeat([]string{digest.FromBytes(layer).String()}, times)
	return jsonOf(t, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Cmd": []string{"/bin/sh"}, field: value},
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffs},
	})
}

// savedImage is an image in the format of `docker save`.
func savedImage(t *testing.T, layer []byte, times int, config []byte, more ...entry) []byte {
	t.Helper()
	manifest := jsonOf(t, []map[string]any{{"Config": "config.json", "RepoTags": []string{"monopod.test/hostile:1"}, "Layers": slices.Repeat([]string{"layer.tar"}, times)}})
	return tarOf(t, append([]entry{tarFile("manifest.json", manifest), tarFile("config.json", config), tarFile("layer.tar", layer)}, more...)...)
}

// imageArchive is an archive of an image with one layer, which is uncompressed although its config claims otherwise.
func imageArchive(t *testing.T, layer []byte, more ...entry) []byte {
	t.Helper()
	return savedImage(t, layer, 1, imageConfig(t, layer, 1, "User", "0"), more...)
}

// layout is an OCI layout of an image with a layer of this type. If wrong, the digest is not that of the layer.
func layout(t *testing.T, mediaType string, layer []byte, wrong bool) []byte {
	t.Helper()
	entries := []entry{tarFile("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))}
	put := func(mediaType string, data, named []byte) map[string]any {
		d := digest.FromBytes(named)
		entries = append(entries, tarFile("blobs/sha256/"+d.Encoded(), data))
		return map[string]any{"mediaType": mediaType, "digest": d.String(), "size": len(data)}
	}
	named := layer
	if wrong {
		named = []byte("something else")
	}
	config := imageConfig(t, layer, 1, "User", "0")
	manifest := jsonOf(t, map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": put("application/vnd.oci.image.config.v1+json", config, config), "layers": []any{put(mediaType, layer, named)},
	})
	index := jsonOf(t, map[string]any{"schemaVersion": 2, "manifests": []any{put("application/vnd.oci.image.manifest.v1+json", manifest, manifest)}})
	return tarOf(t, append(entries, tarFile("index.json", index))...)
}

const (
	// diskOfImages is the size of the disk for images, in MiB; a bomb is larger by half.
	diskOfImages = 256
	// evictedBelow is the free space in MiB below which pods are evicted.
	evictedBelow = 96
)

// gzipped and zstdCompressed return the compressed tar that write creates.
func gzipped(t *testing.T, write func(w *tar.Writer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	if err := errors.Join(write(w), w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstdCompressed(t *testing.T, write func(w *tar.Writer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	if err := errors.Join(write(w), w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// oneFile writes a file larger than the disk.
func oneFile(name string) func(w *tar.Writer) error {
	return func(w *tar.Writer) error {
		size := int64(diskOfImages * 3 / 2 << 20)
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: size}); err != nil {
			return err
		}
		_, err := io.CopyN(w, zeros{}, size)
		return err
	}
}

// manyFiles writes empty files, with a high n more than the disk has inodes.
func manyFiles(n int) func(w *tar.Writer) error {
	return func(w *tar.Writer) error {
		for i := range n {
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("d%d/f%d", i/1000, i), Typeflag: tar.TypeReg, Mode: 0o644}); err != nil {
				return err
			}
		}
		return nil
	}
}

// header is a tar header.
func header(name string, kind byte, size int) []byte {
	var h [512]byte
	copy(h[:], name)
	copy(h[100:], "0000644\x00")
	copy(h[124:], fmt.Sprintf("%011o\x00", size))
	copy(h[136:], "00000000000\x00")
	h[156] = kind
	copy(h[257:], "ustar\x0000")
	sum := 8 * int(' ')
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h[:]
}

// hole returns a tar with a sparse file of size bytes that contains no data. archive/tar cannot write sparse files.
func hole(name string, size int64) []byte {
	records := ""
	for _, r := range []string{fmt.Sprintf("GNU.sparse.size=%d\n", size), "GNU.sparse.numblocks=1\n", fmt.Sprintf("GNU.sparse.map=%d,0\n", size)} {
		records += fmt.Sprintf("%d %s", len(r)+3, r) // all have a length of two digits
	}
	body := make([]byte, 512)
	copy(body, records)
	return slices.Concat(header("pax", 'x', len(records)), body, header(name, '0', 0), make([]byte, 1024))
}

// zstdWindow is a compressed file that makes a decompressor allocate size bytes.
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

// free returns the free space in MiB on the disk of a directory.
func free(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize >> 20
}

// leastFree watches the free space in MiB on the disk of a directory until it is called for the minimum.
func leastFree(t *testing.T, dir string) func() int64 {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	seen := make(chan int64)
	go func() {
		var st unix.Statfs_t
		for least := int64(math.MaxInt64); ; {
			if unix.Statfs(dir, &st) == nil {
				least = min(least, int64(st.Bavail)*st.Bsize>>20)
			}
			select {
			case seen <- least:
				return
			case <-ctx.Done():
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() int64 { defer stop(); return <-seen }
}

// hostileArchive is an archive with the expected message: that it was imported, or why not.
type hostileArchive struct {
	name, want string
	data       []byte
	// onlyLarge: skipped in CI, where similar cases run.
	onlyLarge bool
}

const (
	imported    = "preload archive imported"
	notImported = "preload archive cannot be imported"
	tooFull     = "the disk is too full for it"
)

// hostileArchives are archives; outside is a directory that no image may write to.
func hostileArchives(t *testing.T, outside string) []hostileArchive {
	t.Helper()
	good := tarOf(t, tarFile("bin/sh", []byte("#!")))
	whole := imageArchive(t, good)
	return slices.Concat(hostileFiles(t, outside), hostileTexts(t, good), []hostileArchive{
		{name: "bomb", data: imageArchive(t, gzipped(t, oneFile("bin/sh"))), want: tooFull, onlyLarge: true},
		{name: "bomb-zstd", data: layout(t, "application/vnd.oci.image.layer.v1.tar+zstd", zstdCompressed(t, oneFile("bin/sh")), false), want: tooFull},
		{name: "bomb-hole", data: imageArchive(t, hole("bin/sh", 1<<40)), want: tooFull, onlyLarge: true},
		{name: "bomb-inodes", data: imageArchive(t, gzipped(t, manyFiles(80_000))), want: tooFull, onlyLarge: true},
		{name: "bomb-blob", data: gzipped(t, oneFile("blob")), want: tooFull, onlyLarge: true},
		{name: "bomb-blob-hole", data: hole("blob", 4<<30), want: tooFull},
		{name: "bomb-entries", data: gzipped(t, manyFiles(1_000_000)), want: "more than 10000 files", onlyLarge: true},
		{name: "window", data: zstdWindow(t, 256<<20), want: "compress them again", onlyLarge: true},
		{name: "window-layer", data: layout(t, "application/vnd.oci.image.layer.v1.tar+zstd", zstdWindow(t, 256<<20), false), want: notImported},
		{name: "window-saved", data: imageArchive(t, zstdWindow(t, 256<<20)), want: notImported},
		{name: "twice", data: imageArchive(t, good, tarFile("manifest.json", []byte("[]")), tarFile("config.json", []byte("{}")), tarFile("layer.tar", good)), want: "filtered out", onlyLarge: true},
		{name: "cut", data: whole[:len(whole)/2], want: "not a complete"},
		{name: "cut-gzip", data: gzipped(t, oneFile("blob"))[:1000], want: notImported, onlyLarge: true},
		{name: "noise", data: bytes.Repeat([]byte("monopod"), 100_000), want: "not a complete", onlyLarge: true},
		{name: "noise-layer", data: imageArchive(t, bytes.Repeat([]byte("monopod"), 100_000)), want: notImported, onlyLarge: true},
		{name: "digest", data: layout(t, "application/vnd.oci.image.layer.v1.tar", good, true), want: notImported},
		{name: "tower", data: savedImage(t, good, 600, imageConfig(t, good, 600, "User", "0")), want: imported, onlyLarge: true},
	})
}

// hostileFiles are images with layers that are difficult for a file system.
func hostileFiles(t *testing.T, outside string) []hostileArchive {
	t.Helper()
	many := 500
	if large() {
		many = 15_000
	}
	climb := strings.Repeat("../", 20) + strings.TrimPrefix(outside, "/")
	var tiny, whiteouts, same []entry
	for i := range many {
		tiny = append(tiny, tarFile(fmt.Sprintf("f%d", i), []byte{byte(i), byte(i >> 8)}))
		whiteouts = append(whiteouts, tarFile(strings.Repeat("d/", i%50)+fmt.Sprintf(".wh.f%d", i), nil))
		same = append(same, tarFile("bin/sh", []byte{byte(i)}))
	}
	xattrs := map[string]string{}
	for i := range 2000 {
		xattrs[fmt.Sprintf("SCHILY.xattr.user.x%d", i)] = strings.Repeat("x", 400)
	}
	link := func(name, to string, kind byte) entry {
		return entry{tar.Header{Name: name, Linkname: to, Typeflag: kind}, nil}
	}
	image := func(entries ...entry) []byte { return imageArchive(t, tarOf(t, entries...)) }
	device := func(name string, kind byte, major, minor int64) entry {
		return entry{tar.Header{Name: name, Typeflag: kind, Devmajor: major, Devminor: minor}, nil}
	}
	return []hostileArchive{
		{name: "slip", data: image(tarFile(climb+"/slip", []byte("x")), tarFile(outside+"/slip", []byte("x"))), want: imported},
		{name: "slip-outside", data: tarOf(t, tarFile(climb+"/slip", []byte("x")), link("manifest.json", outside, tar.TypeSymlink)), want: notImported, onlyLarge: true},
		{name: "links", data: image(link("out", outside, tar.TypeSymlink), tarFile("out/link", []byte("x"))), want: imported},
		{name: "links-hard", data: image(link("hard", climb+"/../passwd", tar.TypeLink)), want: notImported},
		{name: "links-loop", data: image(link("a", "b", tar.TypeSymlink), link("b", "a", tar.TypeSymlink), tarFile("a/b/c", []byte("x"))), want: notImported, onlyLarge: true},
		{name: "devices", data: image(device("dev/mem", tar.TypeChar, 1, 1), device("dev/sda", tar.TypeBlock, 8, 0), device("fifo", tar.TypeFifo, 0, 0)), want: imported, onlyLarge: true},
		{name: "tiny", data: image(tiny...), want: imported, onlyLarge: true},
		{name: "tiny-outside", data: imageArchive(t, tarOf(t, tarFile("a", nil)), tiny[:many/10]...), want: imported},
		{name: "whiteouts", data: image(whiteouts...), want: imported, onlyLarge: true},
		{name: "same", data: image(same...), want: imported, onlyLarge: true},
		{name: "nested", data: image(tarFile(strings.Repeat("d/", 1500)+"f", nil)), want: imported, onlyLarge: true},
		{name: "nested-too-deep", data: image(tarFile(strings.Repeat("d/", 20_000)+"f", nil)), want: notImported, onlyLarge: true},
		{name: "xattrs", data: image(entry{tar.Header{Name: "x", PAXRecords: xattrs}, nil}), want: notImported, onlyLarge: true},
		{name: "xattrs-outside", data: tarOf(t, entry{tar.Header{Name: "x", PAXRecords: xattrs}, nil}), want: "unrecognized image format", onlyLarge: true},
	}
}

// hostileTexts are archives with JSON that needs much memory.
func hostileTexts(t *testing.T, layer []byte) []hostileArchive {
	t.Helper()
	saved := func(field string, value any) []byte {
		return savedImage(t, layer, 1, imageConfig(t, layer, 1, field, value))
	}
	oci := tarFile("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	return []hostileArchive{
		{name: "config", data: saved("Labels", map[string]string{"pad": strings.Repeat("x", 64<<20)}), want: "bytes, the limit", onlyLarge: true},
		{name: "config-env", data: saved("Env", slices.Repeat([]string{"A=B"}, 1_000_000)), want: "values"},
		{name: "config-nested", data: savedImage(t, layer, 1, []byte(strings.Repeat(`{"config":`, 700_000))), want: "values", onlyLarge: true},
		{name: "values", data: tarOf(t, tarFile("manifest.json", []byte("["+strings.Repeat("{},", 2<<20)+"{}]"))), want: "values", onlyLarge: true},
		{name: "values-index", data: tarOf(t, oci, tarFile("index.json", []byte(`{"manifests":[`+strings.Repeat("{},", 2<<20)+"{}]}"))), want: "values"},
		{name: "nested-manifest", data: tarOf(t, tarFile("manifest.json", append(bytes.Repeat([]byte("["), 1<<20), ']'))), want: "values", onlyLarge: true},
		{name: "nested-manifest-less", data: tarOf(t, tarFile("manifest.json", append(bytes.Repeat([]byte("["), 40_000), ']'))), want: notImported, onlyLarge: true},
		{name: "escapes", data: tarOf(t, tarFile("manifest.json", []byte(`[{"Config":"\u001b[31mred","Layers":["\u001b]0;x\u0007"]}]`))), want: notImported, onlyLarge: true},
	}
}

// hostilePaths create something other than a regular file at the path of an archive.
func (a *attacked) hostilePaths() map[string]func(path string) error {
	return map[string]func(path string) error{
		"fifo":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"device":    func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) },
		"zero":      func(path string) error { return os.Symlink("/dev/zero", path) },
		"kmsg":      func(path string) error { return os.Symlink("/proc/kmsg", path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
	}
}

// newOnDisk is an attacked instance with a small disk of its own; pods are evicted when that is full.
func newOnDisk(t *testing.T) (a *attacked, root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "root")
	loopDisk(t, root, diskOfImages)
	in := newInstanceIn(t, t.TempDir())
	in.write(in.config, strings.NewReplacer(
		"rootDirectory: "+filepath.Join(in.dir, "root"), "rootDirectory: "+root,
		"evictionHard: {memory.available: 10Mi}", fmt.Sprintf("evictionHard: {memory.available: 10Mi, nodefs.available: %dMi, nodefs.inodesFree: 10%%}\nevictionCheckFrequency: 1s", evictedBelow),
	).Replace(in.read("config.yaml")))
	t.Cleanup(in.cleanup)
	return attack(in), root
}

// TestAttackArchives: no archive among the preloaded images makes the agent exceed its memory limit, gets a pod evicted, writes outside of
// its target directory, or prevents the import of others.
func TestAttackArchives(t *testing.T) {
	a, root := newOnDisk(t)
	outside := filepath.Join(a.dir, "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, place := range a.hostilePaths() {
		a.survives(name+" in the place of an archive", func() {
			path := filepath.Join(a.dir, "images", name+".tar")
			if err := place(path); err != nil {
				t.Fatal(err)
			}
			a.saysOf(name, "not a regular file")
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		})
	}
	for _, h := range hostileArchives(t, outside) {
		if h.onlyLarge && !large() {
			continue
		}
		a.survives("the archive "+h.name, func() {
			before, least := free(t, root), leastFree(t, root)
			a.write(filepath.Join(a.dir, "images", h.name+".tar"), string(h.data))
			a.saysOf(h.name, h.want)
			if n := least(); n < evictedBelow {
				t.Errorf("%s: %d MiB of the disk were free; pods are evicted below %d", h.name, n, evictedBelow)
			}
			if err := os.Remove(filepath.Join(a.dir, "images", h.name+".tar")); err != nil {
				t.Fatal(err)
			}
			if h.want == imported {
				return
			}
			a.eventually("what "+h.name+" took of the disk is free", func() error {
				if now := free(t, root); now < before-8 {
					return fmt.Errorf("%d MiB are free of %d", now, before)
				}
				return nil
			})
		})
		if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
			t.Errorf("the archive %s has written %v, %v", h.name, left, err)
		}
	}
	for _, bad := range []string{"Evicted", "EvictionThresholdMet", "\x1b"} {
		if a.log.contains(bad) {
			t.Errorf("the log has %q\n%s", bad, a.log.tail())
		}
	}
}

// saysOf waits for a log line about an archive that contains want.
func (a *attacked) saysOf(name, want string) {
	a.t.Helper()
	of := "images/" + name + ".tar"
	a.eventuallyUntil(time.Now().Add(2*patience), name+" has been looked at", func() error { // thousands of files take their time
		for line := range strings.Lines(a.log.String()) {
			if !strings.Contains(line, of) || !strings.Contains(line, imported) && !strings.Contains(line, notImported) {
				continue
			}
			if !strings.Contains(line, want) {
				a.t.Errorf("%s: the log says %.1000s, want %q", name, line, want)
			}
			a.t.Logf("%.400s", line)
			return nil
		}
		return fmt.Errorf("nothing is said of it")
	})
}
