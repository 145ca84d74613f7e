//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"monopod/watcher"
)

// zeros never end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// hostileAnswers are what servers can send, with what is said of each.
func hostileAnswers() []struct {
	name, want string
	state      watcher.ReportState
	answer     http.HandlerFunc
} {
	return []struct {
		name, want string
		state      watcher.ReportState
		answer     http.HandlerFunc
	}{
		{"a body without end", "larger than 10 MiB", watcher.Refused, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, zeros{}) }},
		{"a gzip bomb", "larger than 10 MiB", watcher.Refused, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.Copy(z, zeros{})
		}},
		{"headers without end", "", watcher.Unreachable, func(w http.ResponseWriter, _ *http.Request) {
			for i := range 64 {
				w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1<<20))
			}
		}},
		{"redirects in a circle", "", watcher.Unreachable, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }},
		{"a web page", "text/html", watcher.Refused, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<!DOCTYPE html><html></html>") }},
		{"an answer that stands still", "", watcher.Unreachable, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "apiVersion: v1\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}},
		{"a failure with a long story", "500", watcher.Unreachable, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.Copy(w, zeros{})
		}},
	}
}

// TestAttackSources: whatever a server sends costs no more memory than an answer may have, and nothing that runs.
func TestAttackSources(t *testing.T) {
	site := newSite(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	site.authority(ca)
	a := newAttacked(t, fmt.Sprintf("sources: [{name: fleet, url: %q, caFile: %s, period: 1s, timeout: 2s}]", "https://"+site.address+"/pods.yaml", ca))
	for _, h := range hostileAnswers() {
		a.tells("fleet", watcher.Accepted, "")
		a.survives(h.name, func() {
			site.answers(h.answer)
			a.tells("fleet", h.state, h.want)
		})
		site.says("# nothing\n")
	}
	a.tells("fleet", watcher.Accepted, "")
}

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

// hostileArchives are archives by their names; outside is a directory that no image may write to.
func hostileArchives(t *testing.T, outside string) map[string][]byte {
	t.Helper()
	many := 500
	if large() {
		many = 20_000
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
		"manifests": tarOf(t, tarFile("manifest.json", append(bytes.Repeat([]byte("["), 1<<20), ']'))),
	}
}

// TestAttackArchives: no archive among the preloaded images costs the agent more memory than it may take, or writes anything
// outside of what it is unpacked to.
func TestAttackArchives(t *testing.T) {
	a := newAttacked(t)
	outside := filepath.Join(a.dir, "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range hostileArchives(t, outside) {
		a.survives("the archive "+name, func() {
			a.write(filepath.Join(a.dir, "images", name+".tar"), string(data))
			a.eventually(name+" has been looked at", func() error {
				if !strings.Contains(a.log.String(), "images/"+name+".tar") {
					return fmt.Errorf("nothing is said of it")
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
