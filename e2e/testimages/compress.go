package testimages

import (
	"bytes"
	"compress/gzip"
	"io"
	"log"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

func goarch() string { return runtime.GOARCH }

// compress compresses an archive according to its file name.
func compress(tb testing.TB, path string, raw []byte) []byte {
	tb.Helper()
	var buf bytes.Buffer
	var w io.WriteCloser
	switch {
	case strings.HasSuffix(path, ".gz"), strings.HasSuffix(path, ".tgz"):
		w = gzip.NewWriter(&buf)
	case strings.HasSuffix(path, ".zst"):
		z, err := zstd.NewWriter(&buf, zstd.WithEncoderLevel(zstd.SpeedFastest))
		check(tb, err)
		w = z
	default:
		return raw
	}
	_, err := w.Write(raw)
	check(tb, err)
	check(tb, w.Close())
	return buf.Bytes()
}
