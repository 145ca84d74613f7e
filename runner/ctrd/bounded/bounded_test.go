package bounded

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func put(t *testing.T, s content.Store, mediaType string, data []byte) ocispec.Descriptor {
	t.Helper()
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	if err := content.WriteBlob(t.Context(), s, d.Digest.String(), bytes.NewReader(data), d); err != nil {
		t.Fatal(err)
	}
	return d
}

// A manifest that is small on disk needs a hundred times as much memory when it is decoded.
func TestManifestsOfManyValuesAreNotRead(t *testing.T) {
	from, err := local.NewStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	many := []byte(`{"layers":[` + strings.Repeat("{},", maxValues) + `{}]}`)
	for _, tt := range []struct {
		name, mediaType string
		data            []byte
		refused         bool
	}{
		{"few values", ocispec.MediaTypeImageManifest, []byte(`{"layers":[{}]}`), false},
		{"one long value", ocispec.MediaTypeImageManifest, []byte(`{"a":"` + strings.Repeat("x", 1<<20) + `"}`), false},
		{"JSON in a string", ocispec.MediaTypeImageConfig, []byte(`{"a":"` + strings.Repeat(`[{\",`, maxValues) + `"}`), false},
		{"many values of a manifest", ocispec.MediaTypeImageManifest, many, true},
		{"many values of an index", ocispec.MediaTypeImageIndex, many, true},
		{"many values of a config", ocispec.MediaTypeImageConfig, many, true},
		{"too many bytes", ocispec.MediaTypeImageConfig, make([]byte, MaxMetadata+1), true},
		{"a layer", ocispec.MediaTypeImageLayer, many, false},
	} {
		_, err := content.ReadBlob(t.Context(), Store(from), put(t, from, tt.mediaType, tt.data))
		if refused := errdefs.IsResourceExhausted(err); refused != tt.refused || !refused && err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if err := Check(t.Context(), from, put(t, from, "any/type", append(many, ' '))); !errdefs.IsResourceExhausted(err) {
		t.Errorf("a config of another type: %v", err)
	}
}

// An importer opens layers without a type to detect their compression.
func TestZstdIsNotDecompressedByAnImport(t *testing.T) {
	from, err := local.NewStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	compressed := []byte("\x28\xb5\x2f\xfd\x24\x04\x21\x00\x00text\x00\x00\x00\x00") // with a checksum that is wrong
	for _, tt := range []struct {
		name, mediaType string
		ctx             context.Context
		data            []byte
		same            bool
	}{
		{"zstd without a type", "", Importing(t.Context()), compressed, false},
		{"outside of an import", "", t.Context(), compressed, true},
		{"zstd of a type", ocispec.MediaTypeImageLayerZstd, Importing(t.Context()), compressed, true},
		{"gzip without a type", "", Importing(t.Context()), []byte("\x1f\x8b\x08"), true},
	} {
		r, err := Store(from).ReaderAt(tt.ctx, put(t, from, tt.mediaType, tt.data))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(content.NewReader(r))
		if err != nil || bytes.Equal(got, tt.data) != tt.same {
			t.Errorf("%s: %q, %v", tt.name, got, err)
		}
		if !tt.same {
			z, err := compression.DecompressStream(bytes.NewReader(got))
			if err != nil || z.GetCompression() != compression.Zstd {
				t.Errorf("%s: %v, %v", tt.name, z, err)
			}
			if text, err := io.ReadAll(z); err != nil || len(text) > 0 {
				t.Errorf("%s: %q, %v", tt.name, text, err)
			}
			_ = z.Close()
		}
		_ = r.Close()
	}
}

func tarOf(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(bytes.Repeat([]byte("["), int(h.Size))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sparse is a header of a file that has size bytes, and none in the archive.
func sparse(size int64) []byte {
	var h [512]byte
	copy(h[:], "hole")
	copy(h[100:], "0000644\x00")
	copy(h[124:], "00000000000\x00")
	copy(h[136:], "00000000000\x00")
	h[156] = 'S'
	copy(h[257:], "ustar  \x00")
	copy(h[386:], fmt.Sprintf("%011o\x00%011o\x00", size, 0))
	copy(h[483:], fmt.Sprintf("%011o\x00", size))
	sum := 8 * int(' ')
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return append(h[:], make([]byte, 1024)...)
}

func TestArchivesAreLimited(t *testing.T) {
	many := make([]tar.Header, maxEntries+1)
	for i := range many {
		many[i] = tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("f%d", i)}
	}
	file := func(name string, size int64) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Uid: 5, PAXRecords: map[string]string{"SCHILY.xattr.user.x": "\xff"}}
	}
	for _, tt := range []struct {
		name    string
		data    []byte
		refused string
	}{
		{"as many files as there may be", tarOf(t, many[1:]...), ""},
		{"a directory more", tarOf(t, append(many[1:], tar.Header{Typeflag: tar.TypeDir, Name: "d/"})...), ""},
		{"more files", tarOf(t, many...), "more than 10000 files"},
		{"JSON of many values", tarOf(t, file("./manifest.json", maxValues+1)), "more than 50000 values"},
		{"large JSON", tarOf(t, file("oci-layout", MaxMetadata+1)), "bytes, the limit is"},
		{"a blob of many values", tarOf(t, file("blobs/sha256/x", maxValues+1)), ""},
		{"a hole", sparse(1 << 20), ""},
		{"a larger hole", sparse(maxArchive - 1), "too many for its size"},
		{"what ends early", tarOf(t, tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 100})[:550], io.ErrUnexpectedEOF.Error()},
	} {
		var size int64
		if tt.name == "a larger hole" {
			size = -maxArchive / maxRatio / 2 // a smaller limit
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := Archive(bytes.NewReader(tt.data), size)
		n, err := io.Copy(io.Discard, r)
		_ = r.Close()
		runtime.ReadMemStats(&after)
		if cost := after.TotalAlloc - before.TotalAlloc; cost > 64<<20 {
			t.Errorf("%s: %d MiB were allocated", tt.name, cost>>20)
		}
		if tt.refused == "" && err != nil || tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)) {
			t.Errorf("%s: %v after %d bytes", tt.name, err, n)
		}
	}
	c := &counted{Reader: strings.NewReader("four"), left: 3}
	if _, err := io.Copy(io.Discard, c); !errdefs.IsResourceExhausted(err) {
		t.Errorf("a stream that is too long: %v", err)
	}
}

// The archive contains only what importers read.
func TestArchivesPassOnFilesAndLinks(t *testing.T) {
	in := tarOf(t, tar.Header{Typeflag: tar.TypeReg, Name: "blobs/a", Size: 3}, tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "blobs/a"}, tar.Header{Typeflag: tar.TypeChar, Name: "dev"})
	out := Archive(bytes.NewReader(in), int64(len(in)))
	defer func() { _ = out.Close() }()
	r, got := tar.NewReader(out), ""
	for {
		hdr, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got += fmt.Sprintf("%s %s %s;", hdr.Name, hdr.Linkname, text)
	}
	if want := "blobs/a  [[[;l blobs/a ;"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestDecompressLimitsMemory(t *testing.T) {
	for _, tt := range []struct {
		window  int
		refused bool
	}{{8 << 20, false}, {maxWindow, false}, {4 * maxWindow, true}} {
		var b bytes.Buffer
		w, err := zstd.NewWriter(&b, zstd.WithWindowSize(tt.window), zstd.WithSingleSegment(false), zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = w.Write([]byte("text")); err == nil {
			err = errors.Join(w.Flush(), w.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		r, err := Decompress(&b)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if (err != nil) != tt.refused || tt.refused && !strings.Contains(err.Error(), "compress them again") || err == nil && string(text) != "text" {
			t.Errorf("a window of %d: %q, %v", tt.window, text, err)
		}
		_ = r.Close()
	}
}

func TestDiskIsWatched(t *testing.T) {
	const gib = 1 << 30
	for _, tt := range []struct {
		name         string
		before, then Room
		refused      bool
	}{
		{"enough", Room{60 * gib, 900}, Room{30 * gib, 900}, false},
		{"less than pods are evicted below", Room{60 * gib, 900}, Room{19 * gib, 900}, true},
		{"little more than that", Room{60 * gib, 900}, Room{20*gib + margin - 1, 900}, true},
		{"little more than that from the start", Room{20*gib + 100, 900}, Room{20*gib + 51, 900}, false},
		{"less, where little more was", Room{20*gib + 100, 900}, Room{20*gib + 49, 900}, true},
		{"less from the start", Room{19 * gib, 900}, Room{18 * gib, 900}, false},
		{"less than always stays free", Room{19 * gib, 900}, Room{gib - 1, 900}, true},
		{"less than that from the start", Room{gib - 100, 900}, Room{gib / 2, 900}, false},
		{"the other half of it", Room{gib - 100, 900}, Room{gib/2 - 100, 900}, true},
		{"too few inodes", Room{60 * gib, 900}, Room{60 * gib, 29}, true},
		{"few inodes from the start", Room{60 * gib, 20}, Room{60 * gib, 10}, false},
		{"a file system without inodes", Room{60 * gib, 0}, Room{60 * gib, 0}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var now atomic.Pointer[Room]
			now.Store(&tt.before)
			d := Disk{Dir: "d", Keep: func(size Room) Room { return Room{size.Bytes / 5, 0} }, look: func(string) (Room, Room, error) {
				return Room{100 * gib, 1000}, *now.Load(), nil
			}}
			ctx, stop := d.Watch(t.Context())
			time.Sleep(time.Second)
			synctest.Wait()
			if err := ctx.Err(); err != nil {
				t.Errorf("%s: before anything was written: %v", tt.name, err)
			}
			now.Store(&tt.then)
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			stop()
			if err := Cause(ctx, context.Canceled); errors.Is(err, ErrFull) != tt.refused {
				t.Errorf("%s: %v", tt.name, err)
			}
			if Cause(ctx, nil) != nil {
				t.Errorf("%s: what succeeded has failed", tt.name)
			}
		})
	}
}

func TestGuardOfADisk(t *testing.T) {
	const gib = 1 << 30
	now := Room{60 * gib, 900}
	d := Disk{Dir: "d", Keep: func(size Room) Room { return Room{size.Bytes / 5, 0} }, look: func(string) (Room, Room, error) {
		return Room{100 * gib, 1000}, now, nil
	}}
	guard := d.Guard()
	for _, tt := range []struct {
		name    string
		free    Room
		bytes   int64
		refused bool
	}{
		{"a file that fits", Room{60 * gib, 900}, 39 * gib, false},
		{"a file that does not", Room{60 * gib, 900}, 40 * gib, true},
		{"the same when others have written", Room{40 * gib, 900}, 39 * gib, true},
		{"an empty file without an inode", Room{60 * gib, 29}, 0, true},
	} {
		now = tt.free
		if err := guard(tt.bytes); errors.Is(err, ErrFull) != tt.refused {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
